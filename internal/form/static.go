package form

import (
	"io"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/int4"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// A static weight is codes and a DequantizeLinear. Its scales may depend on biases. Therefore package
// actpairs computes the scales, not package quantize.

// setStatic sets the view of a static weight. Each row or each column shares a scale, or all do.
func (w *Weight) setStatic() {
	dims := w.Shape
	w.Outer, w.K, w.Inner = 1, shapes.Count(dims), 1
	w.codec = int4.Codec{Bits: w.Choice.Format.Bits(), Signed: w.Choice.Format.Signed(), ZeroPoint: true}
	if w.Choice.Format == spec.FP8E4M3 {
		w.codec = fp8.Codec{Format: fp8.E4M3FN}
	}
	if s := w.Choice.Static; s.Block > 0 {
		w.Outer, w.K, w.Inner = shapes.Count(dims[:s.Along]), dims[s.Along], shapes.Count(dims[s.Along+1:])
		w.Block = int64(s.Block)
		w.Blocks = w.K / w.Block
		return
	}
	switch axis := w.Choice.Static.Axis; {
	case axis >= 0 && axis == len(dims)-1:
		w.K, w.Inner = w.K/dims[axis], dims[axis]
	case axis >= 0:
		w.Outer = shapes.Count(dims[:axis+1])
		w.K /= w.Outer
	case len(dims) > 1:
		w.Outer = dims[0]
		w.K /= w.Outer
	}
	w.Block, w.Blocks = w.K, 1
}

// Computed adds an initializer whose content is computed when it is read.
func (b *Builder) Computed(c *graph.Copy, name string, typ dtype.DType, shape []int64, content io.ReaderAt) *onnxpb.TensorProto {
	t := b.Tensor(name, typ, shape)
	c.Fill(t, modelfile.Computed(content, graph.SizeOf(t)))
	return t
}

// BuildStatic adds the tensors of a static weight and its DequantizeLinear.
func (w *Weight) BuildStatic(b *Builder, c *graph.Copy) (t Tensors) {
	var scales []int64
	var attrs []*onnxpb.AttributeProto
	s := w.Choice.Static
	switch {
	case s.Block > 0:
		scales = slices.Clone(w.Shape)
		scales[s.Along] = w.Blocks
		attrs = []*onnxpb.AttributeProto{IntAttr("axis", int64(s.Along)), IntAttr("block_size", w.Block)}
	case s.Axis >= 0:
		scales, attrs = []int64{w.Shape[s.Axis]}, []*onnxpb.AttributeProto{IntAttr("axis", int64(s.Axis))}
	}
	t.Codes = b.Tensor(w.Name+w.Choice.Format.Traits().Suffix, w.codeType(), w.Shape)
	t.Scales = b.Computed(c, w.Name+"_scale", dtype.Float32, scales, s.ScaleBytes())
	t.Zeros = b.Computed(c, w.Name+"_zp", w.codeType(), scales, s.ZeroBytes())
	b.Node(w.Name, "DequantizeLinear", w.Name, []string{t.Codes.GetName(), t.Scales.GetName(), t.Zeros.GetName()}, attrs...)
	return t
}

// staticOpset is the least opset for a static weight.
func (w *Weight) staticOpset() int64 {
	need := w.codeType().Opset()
	switch {
	case w.Choice.Block > 0:
		return max(need, 21)
	case w.Choice.Block == spec.PerChannel:
		return max(need, 13) // axis
	}
	return max(need, 10)
}
