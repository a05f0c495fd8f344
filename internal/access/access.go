// Package access gives the packages of this module what the types of package onnxq hide from
// others: their fields are of internal types.
//
//	x := access.Graph(model) // model is an *onnxq.Model
//
// onnxq sets the functions when it is initialized. They are not changed later.
package access

import (
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
)

var (
	Graph  func(model any) *graph.Graph // the index of the values of an *onnxq.Model
	Stages func(plan any) *convert.Plan // the plan of the stages behind an *onnxq.Plan

	// Planner returns a function that makes what Stages returns of plans of an *onnxq.Model, with
	// onnxq.Options that select the same tensors. It describes none of these: where many plans are made,
	// nobody reads that.
	Planner func(model any) (plan func(options any) (*convert.Plan, error))
)
