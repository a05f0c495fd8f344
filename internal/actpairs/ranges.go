package actpairs

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/rules"
)

// CheckRanges refuses ranges of another model.
func CheckRanges(x *graph.Graph, r *rules.Ranges) error {
	if r.Model.SHA256 != "" {
		sum, err := x.File.SHA256()
		if err != nil {
			return err
		}
		if err := r.Check(sum); err != nil {
			return err
		}
	}
	var names []string
	graph.WalkAllGraphs(x.File.Proto, func(g *onnxpb.GraphProto) {
		for _, v := range x.Scope(g).Values {
			names = append(names, v.Name, v.Path)
		}
	})
	slices.Sort(names)
	return r.Unused(names)
}
