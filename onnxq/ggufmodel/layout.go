package ggufmodel

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/gguf"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
)

// layout is the order of a tensor's elements in a GGUF file. There, blocks run along the last axis,
// which must be the reduction axis. So the axis that MatMul or Gemm sums over, or the features of an
// embedding, comes last: MatMul's [K,N] is [N,K] in the file. Other tensors keep their order. The
// layout depends only on the graph, so ReadWeights can read files that other programs made from the
// same weights.
type layout struct {
	shape []int64 // in the file

	// The elements are [outer, k, inner] in the model and [outer, inner, k] in the
	// file: rows of k.
	outer, k, inner int64
	summed          bool // k is the reduction axis, so rows may be quantized
}

// maxAxes is the limit of ggml.
const maxAxes = 4

// layoutOf returns the layout of a tensor that leaves read. A scalar becomes [1]. With more
// than four axes, the first ones are merged.
func layoutOf(shape []int64, leaves []reach.Leaf) layout {
	o, summed := operandOf(shape, leaves)
	if !summed {
		o = reach.Operand{Axis: len(shape) - 1, View: shape}
	}
	if len(o.View) == 0 {
		return layout{shape: []int64{1}, outer: 1, k: 1, inner: 1}
	}
	l := layout{
		outer:  shapes.Count(o.View[:o.Axis]),
		k:      o.View[o.Axis],
		inner:  shapes.Count(o.View[o.Axis+1:]),
		summed: summed,
	}
	l.shape = append(slices.Delete(slices.Clone(o.View), o.Axis, o.Axis+1), l.k)
	if first := len(l.shape) - maxAxes + 1; first > 1 {
		l.shape = slices.Replace(l.shape, 0, first, shapes.Count(l.shape[:first]))
	}
	return l
}

// operandOf returns the operand of the first product, or else of the first lookup. It is not
// ok for weights of convolutions, which have no reduction axis in GGUF.
func operandOf(shape []int64, leaves []reach.Leaf) (o reach.Operand, ok bool) {
	for _, l := range leaves {
		next, weight, why := l.Operand(shape)
		switch {
		case !weight || why != "" || reach.OperatorOf(l.Use).Whole || shapes.Count(shape) == 0:
		case !looksUp(l.Use):
			return next, true
		case !ok:
			o, ok = next, true
		}
	}
	return o, ok
}

// looksUp reports whether the operator looks up rows of the tensor.
func looksUp(u graph.Use) bool {
	return slices.Contains([]string{"Gather", "GatherND", "EmbedLayerNormalization"}, u.Node.GetOpType())
}

// transposed reports whether elements are in another order than in the model.
func (l layout) transposed() bool { return l.inner > 1 && l.k > 1 }

// rows is the number of rows in the file.
func (l layout) rows() int64 { return l.outer * l.inner }

// matrix is the number of rows of one matrix in the file.
func (l layout) matrix() int64 {
	if len(l.shape) < 2 {
		return 1
	}
	return l.shape[len(l.shape)-2]
}

// sameShape compares shapes without leading dimensions of 1, which ggml drops.
func sameShape(a, b []int64) bool { return slices.Equal(trimOnes(a), trimOnes(b)) }

func trimOnes(shape []int64) []int64 {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// floatTypes maps float types of ONNX to GGUF.
var floatTypes = map[dtype.DType]gguf.Type{
	dtype.Float32:  gguf.F32,
	dtype.Float16:  gguf.F16,
	dtype.BFloat16: gguf.BF16,
	dtype.Float64:  gguf.F64,
}
