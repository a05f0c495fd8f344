package discover

import (
	"sync/atomic"
	"weak"

	"onnxquant/internal/graph"
)

// Known remembers why tensors of a graph are not selected. Further plans, with options that select
// the same tensors, need not examine them again: a model may have very many small tensors.
type Known struct{ found atomic.Pointer[unselected] }

// unselected has the reason why each tensor is not selected, in the order of undecided; "" for
// selected tensors.
type unselected struct {
	graph   weak.Pointer[graph.Graph] // may differ between plans: see package fold
	reasons []string
}

// known sets the reasons from Known, and reports whether there are any.
func (o *Options) known(x *graph.Graph, all []*Decision) bool {
	if o.Known == nil || o.Static != nil { // with Static, selection also depends on the activations
		return false
	}
	found := o.Known.found.Load()
	if found == nil || found.graph.Value() != x {
		return false
	}
	for i, d := range all {
		d.Reason = found.reasons[i]
	}
	return true
}

// remember keeps the reasons of tensors that are not selected, whatever their format.
func (o *Options) remember(x *graph.Graph, all []*Decision) {
	if o.Known == nil || o.Static != nil {
		return
	}
	found := &unselected{weak.Make(x), make([]string, len(all))}
	for i, d := range all {
		if !d.Selected && d.Choice.Format == "" { // no setting of formats was the reason
			found.reasons[i] = d.Reason
		}
	}
	o.Known.found.Store(found)
}
