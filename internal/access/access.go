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

	// Plan is Stages of what Plan of an *onnxq.Model makes with onnxq.Options, without a description of
	// each tensor, which nobody reads where many plans are made.
	Plan func(model, options any) (*convert.Plan, error)
)
