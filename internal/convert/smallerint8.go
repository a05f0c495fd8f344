package convert

import (
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/rewrite"
	"onnxquant/spec"
)

// smallWeight is a number of elements. In smaller weights, nodes and indices may take more bytes
// than codes.
const smallWeight = 1 << 14

// smallerAsInt8 finds the weights that take fewer bytes in int8 than in the requested ggml format.
// Except for the formats with a scale alone, ggml formats need more nodes, and an index as long as
// the reduction axis. Weights share the index: its bytes are saved only if all its users become
// int8.
func (p *Plan) smallerAsInt8() (discover.Exceptions, error) {
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
		exchanged, stays := map[*graph.Value]bool{}, map[string]bool{} // weights; constants that remaining weights use
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
	found := discover.Exceptions{}
	for _, e := range all {
		found[e.weight.Value.Path] = discover.Exception{SmallerAsInt8: true}
	}
	return found, nil
}

// exchange is a weight with two footprints: in the requested format and in int8.
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
