package onnxq

import (
	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
)

func init() {
	access.Graph = func(model any) *graph.Graph {
		if m := model.(*Model); m != nil {
			return m.graph
		}
		return nil
	}
	access.Stages = func(plan any) *convert.Plan { return plan.(*Plan).plan }
	access.Planner = func(model any) func(any) (*convert.Plan, error) {
		known := &discover.Known{}
		return func(options any) (*convert.Plan, error) {
			p, _, err := model.(*Model).stages(options.(Options), known)
			return p, err
		}
	}
}
