package discover

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/onnxq/spec"
)

// An EmbedLayerNormalization has tables of words, of positions and, if it has segments, of these,
// and scale and bias of its normalization. QEmbedLayerNormalization has codes for all or none.
const (
	firstTable = 2
	firstNorm  = 5 // behind the tables: scale and bias
	lastNorm   = 6
)

func isEmbedding(l reach.Leaf) bool {
	return graph.Operator(l.Node) == graph.Contrib+".EmbedLayerNormalization"
}

// embeddingLacks returns why QEmbedLayerNormalization cannot replace a node, or "".
func embeddingLacks(x *graph.Graph, n *onnxpb.NodeProto) string {
	lacks := graph.HasInput(n, 8) || len(n.Output) > 2 && n.Output[2] != ""
	for _, a := range n.Attribute {
		lacks = lacks || a.GetName() != "epsilon"
	}
	if lacks {
		return "QEmbedLayerNormalization does not have all inputs, outputs and attributes of this EmbedLayerNormalization"
	}
	for i := firstTable; i <= lastNorm; i++ {
		switch v := x.Source(n, i); {
		case v == nil && i == firstNorm-1: // no segments
		case v == nil || v.Tensor == nil || v.Tensor.GetDataType() != int32(dtype.Float32):
			return fmt.Sprintf("input %d of %s is no stored float32 tensor", i, graph.Describe(n))
		}
	}
	return ""
}

// settleEmbeddings lets all stored inputs of an EmbedLayerNormalization be dynamic, or none. Scale
// and bias, which are not selected as weights, are quantized with the tables.
func settleEmbeddings(x *graph.Graph, all []*Decision, opts Options, trained map[string]bool, except Exceptions) {
	if !slices.ContainsFunc(all, func(d *Decision) bool { return d.Choice.Dynamic.Kind == Embedding }) {
		return
	}
	of := map[*graph.Value]*Decision{}
	for _, d := range all {
		of[d.Value] = d
	}
	joins := func(v *graph.Value, input int) bool {
		d := of[v]
		if input < firstNorm {
			return d != nil && d.Quantize && d.Choice.Dynamic.Kind == Embedding
		}
		if d != nil && !d.Selected {
			d.Reach = reach.Of(x, d.Value, d.Shape)
		}
		return d != nil && d.joinsEmbedding(opts, trained, except)
	}
	missing := func(n *onnxpb.NodeProto) *graph.Value {
		for i := firstTable; i <= lastNorm; i++ {
			if v := x.Source(n, i); v != nil && !joins(v, i) {
				return v
			}
		}
		return nil
	}
	nodes := func(d *Decision) (list []*onnxpb.NodeProto) {
		if d.Quantize && d.Choice.Dynamic.Kind == Embedding {
			for _, l := range d.Reach.Leaves {
				if isEmbedding(l) {
					list = append(list, l.Node)
				}
			}
		}
		return list
	}
	for again := true; again; {
		again = false
		for _, d := range all {
			for _, n := range nodes(d) {
				if v := missing(n); v != nil {
					d.decode(fmt.Sprintf("%s, which %s reads, too, is not quantized alike", v.Path, graph.Describe(n)))
					again = true
					break
				}
			}
		}
	}
	for _, d := range all {
		for _, n := range nodes(d) {
			for i := firstNorm; i <= lastNorm; i++ {
				norm := of[x.Source(n, i)]
				c := *d.Choice
				c.Operand = reach.Operand{View: norm.Shape}
				norm.Selected, norm.Quantize, norm.Reason, norm.Choice = true, true, "", &c
			}
		}
	}
}

// joinsEmbedding reports whether scale or bias of an EmbedLayerNormalization can be quantized with
// its tables: nothing else reads it, and nobody wants it to stay.
func (d *Decision) joinsEmbedding(opts Options, trained map[string]bool, except Exceptions) bool {
	v := d.Value
	n, _ := dtype.Elements(d.Shape)
	other := slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		return !isEmbedding(l) || l.Input < firstNorm || len(l.Via) > 0
	})
	return n > 0 && len(d.Shape) == 1 && !other && len(d.Reach.Unread) == 0 && !d.Reach.Output && v.Unusual() == nil && v.Body == nil &&
		(!v.Input || v.MustBeInput) && !trained[v.Name] && except.KeepFloat[v] == "" && except.ForceDQ[v] == "" &&
		*d.Override == (spec.Override{}) && !d.matches(opts.Exclude)
}
