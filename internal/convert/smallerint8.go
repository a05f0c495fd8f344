package convert

import (
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/rewrite"
	"onnxquant/onnxq/spec"
)

// smallWeight is the number of elements below which nodes and indices may count for more than
// codes.
const smallWeight = 1 << 14

// smallerAsInt8 finds the weights for which int8 takes fewer bytes than the ggml format that the
// options ask for. All but those that are integers with a scale have more nodes, and an index
// as long as the reduction axis, whose bytes the weights that use it share.
func (p *Plan) smallerAsInt8() (found []rewrite.Weight, err error) {
	if p.InBytes() < toyModel {
		return nil, nil
	}
	names, users := p.graph.NewNames(), map[string]int64{}
	var asked []rewrite.Weight
	var sizes []form.Footprint
	for _, w := range p.Weights {
		o := w.Override
		if !w.Form.Encoded() || w.Choice.Format.Scaled() || w.Form.Elements() >= smallWeight || o.Format != nil || o.Bits != nil {
			continue
		}
		f := w.Form.Footprint(names)
		for key := range f.Shared {
			users[key]++
		}
		asked, sizes = append(asked, w), append(sizes, f)
	}
	bytes := func(f form.Footprint) int64 {
		n := f.Own
		for key, size := range f.Shared {
			n += size / max(users[key], 1)
		}
		return n
	}
	for i, w := range asked {
		int8, err := integers(w, names)
		if err != nil {
			return nil, err
		}
		if bytes(int8) < bytes(sizes[i]) {
			found = append(found, w)
		}
	}
	return found, nil
}

// integers returns the footprint of a weight as int8.
func integers(w rewrite.Weight, names *graph.Names) (form.Footprint, error) {
	c := *w.Choice
	var err error
	if c.Format, c.Block, err = spec.Resolve(8, "", 0, false); err != nil {
		return form.Footprint{}, err
	}
	alternative, err := form.New(w.Value.Name, w.DType, w.Shape, c)
	if err != nil {
		return form.Footprint{}, err
	}
	return alternative.Footprint(names), nil
}
