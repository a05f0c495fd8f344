package form

import (
	"io"

	"onnxquant/formats/dtype"
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
	w.codec = int4.Codec{Bits: 8, Signed: w.Choice.Format.Signed(), ZeroPoint: true}
}

// given returns the scales and zero points of a static weight.
func (w *Weight) given() (scales []float32, zeros []byte, err error) {
	params, err := w.Choice.Static.Params()
	for _, p := range params {
		scales, zeros = append(scales, p.Scale), append(zeros, byte(p.Zero))
	}
	return scales, zeros, err
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
	if s.Axis >= 0 {
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
	if w.Choice.Block == spec.PerChannel {
		return 13 // axis
	}
	return 10
}
