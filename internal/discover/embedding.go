package discover

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/spec"
)

// An EmbedLayerNormalization has tables of words, of positions and optionally of segments,
// and scale and bias of its normalization. In QEmbedLayerNormalization all of them are codes.
const (
	firstTable = 2
	firstNorm  = 5 // first input after the tables: scale, then bias
	lastNorm   = 6
)

// isEmbedding reports whether an EmbedLayerNormalization reads a tensor.
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

// embeddings settles the stored inputs of EmbedLayerNormalizations: for each node, all or none are
// dynamic.
type embeddings struct {
	*settling
	of map[*graph.Value]*Decision
}

// settleEmbeddings decodes tables of a node that has another input which is not dynamic. Scale and
// bias are not selected as weights; they are quantized with the tables.
func (s *settling) settleEmbeddings(all []*Decision) {
	if !slices.ContainsFunc(all, (*Decision).forEmbedding) {
		return
	}
	e := embeddings{s, map[*graph.Value]*Decision{}}
	for _, d := range all {
		e.of[d.Value] = d
	}
	for e.decodeLone(all) {
	}
	for _, d := range all {
		for _, n := range d.embeddingNodes() {
			e.quantizeNorm(n, d.Choice)
		}
	}
}

// decodeLone decodes the tables of nodes that have another input which is not dynamic. It reports
// whether there were any: decoding one table may affect other nodes.
func (e *embeddings) decodeLone(all []*Decision) (some bool) {
	for _, d := range all {
		for _, n := range d.embeddingNodes() {
			if v := e.lacking(n); v != nil {
				d.undynamic(fmt.Sprintf("%s, which %s reads, too, is not quantized alike", v.Path, graph.Describe(n)))
				some = true
				break
			}
		}
	}
	return some
}

// lacking returns an input of an EmbedLayerNormalization that cannot be dynamic, or nil.
func (e *embeddings) lacking(n *onnxpb.NodeProto) *graph.Value {
	for i := firstTable; i <= lastNorm; i++ {
		v := e.x.Source(n, i)
		if v == nil {
			continue
		}
		if d := e.of[v]; d == nil || i < firstNorm && !d.forEmbedding() || i >= firstNorm && !e.joins(d) {
			return v
		}
	}
	return nil
}

// quantizeNorm quantizes scale and bias of an EmbedLayerNormalization in the same way as a table.
func (e *embeddings) quantizeNorm(n *onnxpb.NodeProto, as *Choice) {
	for i := firstNorm; i <= lastNorm; i++ {
		d, c := e.of[e.x.Source(n, i)], *as
		c.Operand = reach.Operand{View: d.Shape}
		d.Reach = e.reach(d)
		d.Selected, d.Quantize, d.Reason, d.Choice = true, true, "", &c
	}
}

// forEmbedding reports whether a tensor is quantized for a QEmbedLayerNormalization.
func (d *Decision) forEmbedding() bool { return d.Quantize && d.Choice.Dynamic.Kind == Embedding }

// embeddingNodes lists the nodes that read a tensor and are to become a QEmbedLayerNormalization.
func (d *Decision) embeddingNodes() (list []*onnxpb.NodeProto) {
	if !d.forEmbedding() {
		return nil
	}
	for _, l := range d.Reach.Leaves {
		if isEmbedding(l) {
			list = append(list, l.Node)
		}
	}
	return list
}

// joins reports whether scale or bias of an EmbedLayerNormalization can be quantized with its
// tables: nothing else reads it, and no setting keeps it in float.
func (e *embeddings) joins(d *Decision) bool {
	v, r := d.Value, e.reach(d)
	n, _ := dtype.Elements(d.Shape)
	other := slices.ContainsFunc(r.Leaves, func(l reach.Leaf) bool {
		return !isEmbedding(l) || l.Input < firstNorm || len(l.Via) > 0
	})
	return n > 0 && len(d.Shape) == 1 && !other && len(r.Unread) == 0 && !r.Output &&
		v.Unusual() == nil && v.Body == nil && (!v.Input || v.MustBeInput) && !e.trained[v.Name] &&
		e.except[v.Path].KeepFloat == "" && e.except[v.Path].ForceDQ == "" &&
		*d.Override == (spec.Override{}) && !d.matches(e.opts.Exclude)
}

// reach returns the readers of a tensor. They are known already if the tensor is selected.
func (e *embeddings) reach(d *Decision) reach.Reach {
	if d.Selected {
		return d.Reach
	}
	return reach.Of(e.x, d.Value, d.Shape)
}
