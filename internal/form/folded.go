package form

import (
	"slices"

	"onnxquant/formats/dtype"
)

// folded adds operators that ONNX Runtime folds to a constant when it loads the model. It does not
// fold a DequantizeLinear.
//
//	codes ── Cast ── Sub ── Mul ── w
//	zeros ── Cast ────┘      │
//	scale ───────────────────┘
//
// Without zero points there is no Sub. They compute in float32, as DequantizeLinear does.
func (b *building) folded(scale string, scaleType dtype.DType) {
	float := func(name string, typ dtype.DType) string {
		if typ == dtype.Float32 {
			return name
		}
		return b.Value(name, "Cast", []string{name}, IntAttr("to", int64(dtype.Float32)))
	}
	w := b.w
	value := float(b.tensors.Codes.GetName(), w.codeType())
	if zeros := b.tensors.Zeros; zeros != nil {
		value = b.Value(w.Name, "Sub", []string{value, b.spread(float(zeros.GetName(), w.codeType()))})
	}
	b.result(dtype.Float32, "Mul", []string{value, b.spread(float(scale, scaleType))})
}

// spread repeats each scale or zero point for the elements of its block, unless they broadcast.
func (b *building) spread(name string) string {
	w := b.w
	if w.Blocks == 1 || w.K%w.Block == 0 {
		return name
	}
	return b.Value(name, "Gather", []string{name, b.blockIndex(w.K, w.Block)}, IntAttr("axis", int64(w.axis())))
}

// foldedShapes returns the shapes of codes and scales for folded. The axis of the blocks is cut in two, so
// that scales broadcast, unless the last block is short.
func (w *Weight) foldedShapes() (codes, scales []int64) {
	axis, view := w.axis(), w.view()
	switch {
	case w.Blocks == 1 && axis == 1 && len(view) == 2 && view[0] == w.Shape[0]: // no Reshape
		codes, scales = w.Shape, make([]int64, len(w.Shape))
		for i := range scales {
			scales[i] = 1
		}
		scales[0] = view[0]
		return codes, scales
	case w.Blocks == 1 || w.K%w.Block != 0:
		codes, scales = view, slices.Clone(view)
		scales[axis] = w.Blocks
		return codes, scales
	}
	codes = slices.Concat(view[:axis], []int64{w.Blocks, w.Block}, view[axis+1:])
	scales = slices.Clone(codes)
	scales[axis+1] = 1
	return codes, scales
}
