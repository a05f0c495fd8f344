package verify

import (
	"context"
	"maps"
	"runtime"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/written"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// State says whether OUT is what a conversion wrote.
type State string

const (
	NoRecord  State = "no record"  // another tool wrote it, or it was written with --no-provenance
	AsWritten State = "as written" // every content and every node is as the conversion wrote it
	Rewritten State = "rewritten"  // a tool changed the graph since; no quantized weight that is still there and that the record lists changed
	Edited    State = "edited"     // contents or nodes were changed since; a failure
)

// Written is the result of comparing OUT with the hashes that the conversion recorded.
type Written struct {
	State State `json:"state"`

	// Edited has the names of tensors with another content than the conversion wrote; none if the record
	// has no hashes of single tensors.
	Edited []string `json:"edited,omitempty"`
	Nodes  bool     `json:"nodes_edited,omitempty"` // nodes have other attributes or inputs
}

// String describes the result in a line.
func (w Written) String() string {
	switch w.State {
	case AsWritten:
		return "as written: every content and node has the hash that the conversion recorded"
	case Rewritten:
		return "changed since it was written: another tool rewrote the graph"
	case Edited:
		return "edited since it was written"
	}
	return "unknown: the model has no record of what was written"
}

// compareWritten compares a model with its record.
func compareWritten(ctx context.Context, m *onnxq.Model) (w Written, err error) {
	file := m.Graph().File
	record := written.In(file.Proto)
	if record == nil {
		return Written{State: NoRecord}, nil
	}
	sums, err := written.Read(ctx, file, runtime.GOMAXPROCS(0))
	if err != nil {
		return w, err
	}
	is := written.Of(file.Proto, sums, record.Tensors != nil)
	sameGraph, sameOperators := is.Graph == record.Graph, is.Operators == record.Operators
	switch {
	case sameGraph && is.Contents == record.Contents:
		return Written{State: AsWritten}, nil
	case sameOperators:
		w = Written{State: Edited, Nodes: !sameGraph}
		if is.Contents != record.Contents {
			w.Edited = others(record, is, func(string) bool { return true })
		}
		return w, nil
	}
	parts := partsOf(m)
	w.Edited = others(record, is, func(name string) bool { return parts[name] })
	if w.State = Rewritten; len(w.Edited) > 0 {
		w.State = Edited
	}
	return w, nil
}

// others lists the tensors that both have, with other contents.
func others(was, is *spec.Written, counts func(name string) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(was.Tensors)) {
		if now, there := is.Tensors[name]; there && now != was.Tensors[name] && counts(name) {
			names = append(names, name)
		}
	}
	return names
}

// partsOf has the names of codes, scales and zero points, of weights and of activations.
func partsOf(m *onnxq.Model) map[string]bool {
	parts := map[string]bool{}
	for _, list := range [][]*recognize.Weight{recognize.Weights(m.Graph()), intops.Weights(m.Graph())} {
		for _, w := range list {
			for _, name := range []string{w.Codes, w.Scale, w.ZeroPoint, w.TensorScale} {
				parts[name] = name != ""
			}
		}
	}
	graph.WalkNodes(m.Graph().File.Proto, func(n *onnxpb.NodeProto) {
		if op := n.GetOpType(); op == "QuantizeLinear" || op == "DequantizeLinear" {
			for _, name := range n.Input {
				parts[name] = name != ""
			}
		}
	})
	return parts
}

// judgeWritten fails a model that was edited since it was written.
func (v *verifier) judgeWritten() {
	w := &v.report.Written
	if w.State != Edited {
		return
	}
	for _, name := range w.Edited {
		v.fail(CheckWritten, "%s was edited: its content is not what the conversion wrote", msg.Quote(name))
	}
	switch {
	case w.Nodes:
		v.fail(CheckWritten, "the graph was edited: nodes have other attributes or inputs than the conversion wrote")
	case len(w.Edited) == 0:
		v.fail(CheckWritten, "a tensor was edited: its content is not what the conversion wrote")
	}
}
