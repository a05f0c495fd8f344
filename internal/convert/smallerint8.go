package convert

import (
	"slices"

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
// as long as the reduction axis. It goes, and its bytes count, only if all weights that use it become
// int8.
func (p *Plan) smallerAsInt8() (found []rewrite.Weight, err error) {
	if p.InBytes() < toyModel {
		return nil, nil
	}
	names, users := p.graph.NewNames(), map[string]int64{}
	var all []exchange
	for _, w := range p.Weights {
		o := w.Override
		if !w.Form.Encoded() || w.Choice.Format.Scaled() || w.Form.Elements() >= smallWeight || o.Format != nil || o.Bits != nil {
			continue
		}
		int8, err := integers(w, names)
		if err != nil {
			return nil, err
		}
		e := exchange{w, w.Form.Footprint(names), int8}
		for key := range e.asked.Shared {
			users[key]++
		}
		all = append(all, e)
	}
	for n := -1; n != len(all); {
		n = len(all)
		exchanged, stays := map[*graph.Value]bool{}, map[string]bool{} // weights; constants that others use
		for _, e := range all {
			exchanged[e.weight.Value] = true
		}
		for _, w := range p.Weights {
			for key := range w.Growth.Shared {
				stays[key] = stays[key] || !exchanged[w.Value]
			}
		}
		all = slices.DeleteFunc(all, func(e exchange) bool {
			saved := e.asked.Own - e.int8.Own
			for key, size := range e.asked.Shared {
				if !stays[key] {
					saved += size / users[key]
				}
			}
			return saved <= 0
		})
	}
	for _, e := range all {
		found = append(found, e.weight)
	}
	return found, nil
}

// exchange is a weight with its footprints as asked for and as int8.
type exchange struct {
	weight      rewrite.Weight
	asked, int8 form.Footprint
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
