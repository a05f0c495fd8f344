package layerfit

import (
	"context"

	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
)

// fit is the search for the codes of layers that share inputs.
type fit struct {
	*inputs
	found   []*quantize.Found
	sums    []sums            // by layer
	why     string            // why there are no codes
	few     bool              // a part has fewer rows than a row has elements
	next    int               // first part without codes
	at, end int64             // its place in the store
	experts []FallbackExperts // by layer
}

// begin makes room for the codes of a group.
func (c *calibration) begin(group []*inputs) (fits []*fit) {
	for _, in := range group {
		f := &fit{inputs: in, sums: make([]sums, len(in.layers)), experts: make([]FallbackExperts, len(in.layers)), at: c.store.size}
		for j, i := range in.layers {
			if r := c.routed(in); r != nil {
				f.experts[j].Part = r.Part()
			}
			f.found = append(f.found, c.store.add(c.layers[i].Weight))
		}
		f.end = c.store.size
		fits = append(fits, f)
	}
	return fits
}

// span are parts of inputs whose moments are added up at once.
type span struct {
	*inputs
	from, to int
	routes   operands.Routes // by product; nil if all parts get all rows
}

// wholes returns inputs with all their parts.
func wholes(group []*inputs) (all []span) {
	for _, in := range group {
		all = append(all, span{in, 0, in.parts, nil})
	}
	return all
}

// spans returns the parts that are next for each of some inputs, and the inputs that have any.
func (c *calibration) spans(fits []*fit) (spans []span, of []*fit) {
	for _, f := range fits {
		if f.next == f.parts {
			continue
		}
		s := span{f.inputs, f.next, min(f.next+c.partsAtOnce(f.inputs), f.parts), nil}
		spans, of = append(spans, s), append(of, f)
	}
	return spans, of
}

// routed returns how rows go to parts, or nil if all parts get all rows.
func (c *calibration) routed(in *inputs) operands.Routed {
	r, _ := c.layers[in.layers[0]].Products[0].Operation.(operands.Routed)
	return r
}

// partsAtOnce is the number of parts whose moments are added up at once: all, if rows do not go to parts of their own.
func (c *calibration) partsAtOnce(in *inputs) int {
	if c.routed(in) == nil {
		return in.parts
	}
	return int(min(max(c.Memory/2/c.bytesOf(in, 1), 1), int64(in.parts)))
}

// runsOf is how often the model runs for a group: more than once if the moments of all experts do not fit into memory.
func (c *calibration) runsOf(group []*inputs) (most int) {
	for _, in := range group {
		at := c.partsAtOnce(in)
		most = max(most, (in.parts+at-1)/at)
	}
	return most
}

// addRouted adds the rows that parts get in a product. If the values do not fit the weight, the parts have no codes by data.
func (c *calibration) addRouted(ctx context.Context, of span, parts []*moments, p Product, s *sample) error {
	if err := of.routes.Take(s.interim(p.Input), s.interim(p.Second)); err != nil {
		for _, m := range parts {
			m.unknown = valueError(p.Input, err).Error()
		}
		return nil
	}
	residuals := make([][]float32, len(of.layers)) // none: the products are in no value
	for i, m := range parts {
		rows, at, err := of.routes.Of(ctx, c.workers, of.from+i)
		if err != nil {
			return valueError(p.Input, err)
		}
		for r, position := range at {
			if err := m.add(ctx, c.workers, c.heldOut(s.index, position), rows[r*m.k:][:m.k], residuals); err != nil {
				return err
			}
		}
	}
	return nil
}
