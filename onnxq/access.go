package onnxq

import (
	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
)

func init() {
	access.Graph = func(model any) *graph.Graph { return model.(*Model).graph }
	access.Stages = func(plan any) *convert.Plan { return plan.(*Plan).plan }
	access.Plan = func(model, options any) (*convert.Plan, error) {
		p, _, err := model.(*Model).stages(options.(Options))
		return p, err
	}
}
