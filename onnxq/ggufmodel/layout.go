package ggufmodel

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/gguf"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
)

// layout is how a tensor of a model lies in a GGUF file. There, blocks run along
// the last axis, and a linear layer's weight is rows of what its output sums over.
// So the axis that MatMul or Gemm sums over, or the features of an embedding, comes
// last: of MatMul's [K,N] the file has [N,K]. Other tensors lie as they do in the
// model. The layout follows from the graph, not from the file, so that what is read
// back finds its way, and so do files that others made of the same weights.
type layout struct {
	shape []int64 // in the file

	// The elements are [outer, k, inner] in the model and [outer, inner, k] in the
	// file: rows of k.
	outer, k, inner int64
	summed          bool // k is the axis summed over, so that the rows may be quantized
}

// maxAxes is the most that ggml takes.
const maxAxes = 4

// layoutOf lays a tensor out that gets to leaves. A scalar becomes [1], and the
// first axes of a tensor of more than four count as one.
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

// operandOf finds what a product sums over, or else the features of an embedding.
// Weights of convolutions have no such axis in GGUF.
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

// looksUp tells whether the operator takes rows of the tensor.
func looksUp(u graph.Use) bool {
	return slices.Contains([]string{"Gather", "GatherND", "EmbedLayerNormalization"}, u.Node.GetOpType())
}

// transposed tells whether elements are in another order than in the model.
func (l layout) transposed() bool { return l.inner > 1 && l.k > 1 }

// rows is the number of rows in the file.
func (l layout) rows() int64 { return l.outer * l.inner }

// matrix is the number of rows in the file that make up one matrix.
func (l layout) matrix() int64 {
	if len(l.shape) < 2 {
		return 1
	}
	return l.shape[len(l.shape)-2]
}

// sameShape compares shapes but for first dimensions of 1, which ggml drops.
func sameShape(a, b []int64) bool { return slices.Equal(trimOnes(a), trimOnes(b)) }

func trimOnes(shape []int64) []int64 {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// floatTypes gives the type of GGUF that is a float type of ONNX.
var floatTypes = map[dtype.DType]gguf.Type{
	dtype.Float32:  gguf.F32,
	dtype.Float16:  gguf.F16,
	dtype.BFloat16: gguf.BF16,
	dtype.Float64:  gguf.F64,
}
