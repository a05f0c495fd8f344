package discover

import (
	"sync/atomic"
	"weak"

	"onnxquant/internal/graph"
)

// Known remembers why tensors of a graph are not selected, for more plans whose options select the same
// ones: a model may have very many small tensors, and what reads each of them is then looked at once.
type Known struct{ found atomic.Pointer[unselected] }

// unselected has, by tensor in the order of undecided, the reason why it is not selected; "" for others.
type unselected struct {
	graph   weak.Pointer[graph.Graph] // it may be another one for each plan, see package fold
	reasons []string
}

// known sets the reasons that are known, and reports whether they are.
func (o *Options) known(x *graph.Graph, all []*Decision) bool {
	if o.Known == nil || o.Static != nil { // whether activations are quantized decides about tensors, too
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
		if !d.Selected && d.Choice == noChoice {
			found.reasons[i] = d.Reason
		}
	}
	o.Known.found.Store(found)
}
