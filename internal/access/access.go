// Package access gives the packages of this module what the types of package onnxq hide from
// others: their fields are of internal types.
//
//	x := access.Graph(model) // model is an *onnxq.Model
//
// onnxq sets the functions when it is initialized. They are not changed later.
package access

import (
	"context"
	"errors"

	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
)

var (
	Graph  func(model any) *graph.Graph // the index of the values of an *onnxq.Model, nil if that was not opened
	Stages func(plan any) *convert.Plan // the plan of the stages behind an *onnxq.Plan

	// Planner returns a function that makes what Stages returns of plans of an *onnxq.Model, with
	// onnxq.Options that select the same tensors. It describes none of these: where many plans are made,
	// nobody reads that.
	Planner func(model any) (plan func(options any) (*convert.Plan, error))
)

// Ready returns an error if the context is nil, or an *onnxq.Model was not opened: functions that callers of
// the module use ask first.
func Ready(ctx context.Context, models ...any) error {
	if ctx == nil {
		return errNoContext
	}
	return Opened(models...)
}

// Opened returns an error if an *onnxq.Model was not opened.
func Opened(models ...any) error {
	for _, m := range models {
		if Graph(m) == nil {
			return errNotOpened
		}
	}
	return nil
}

var (
	errNoContext = errors.New("the context is nil: give context.Background()")
	errNotOpened = errors.New("the model is not open: use what onnxq.Open returned")
)
