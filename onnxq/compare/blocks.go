package compare

import (
	"onnxquant/internal/recognize"
	"onnxquant/internal/shapes"
)

// indexOf converts an element's position to its index in each axis.
func indexOf(shape []int64, i int64) []int64 {
	at := make([]int64, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % max(shape[k], 1)
		i /= max(shape[k], 1)
	}
	return at
}

// cutting sees a tensor as [outer, length, inner], cut into blocks along the middle axis.
type cutting struct {
	length, inner, block int64

	shape []int64 // shape of the tensor of codes
	axis  int     // axis of the blocks, or of per-axis scales; -1: neither
}

func oneBlock(shape []int64) cutting {
	n := max(shapes.Count(shape), 1)
	return cutting{length: n, inner: 1, block: n, shape: append([]int64{}, shape...), axis: -1}
}

// mostOpen limits the number of blocks side by side, whose errors are summed at the same time. A
// tensor with more is one block.
const mostOpen = 1 << 20

// blocksOfWeight returns the blocks that share a scale. If each index of an inner axis has a
// scale, blocks are the contiguous parts of what shares it.
func blocksOfWeight(shape []int64, w *recognize.Weight, transposed bool) cutting {
	axis := w.Axis
	if w.Transposed != transposed {
		if axis >= len(shape)-2 {
			axis = 2*len(shape) - 3 - axis
		}
	} else if codes := shapeOfCodes(w); !w.Transposed && shapes.Count(codes) == shapes.Count(shape) {
		shape = codes // its elements are in the same order
	}
	if w.PerTensor || axis < 0 || axis >= len(shape) || shapes.Count(shape) == 0 {
		return oneBlock(shape)
	}
	inner := shapes.Count(shape[axis+1:])
	if inner > mostOpen {
		return oneBlock(shape)
	}
	c := cutting{length: inner, inner: 1, block: inner, shape: shape, axis: axis}
	switch {
	case w.Block > 0:
		c.length, c.inner, c.block = shape[axis], inner, min(w.Block, shape[axis])
	case axis == len(shape)-1:
		c.length, c.inner = shapes.Count(shape[:axis]), shape[axis]
		c.block = c.length
	}
	return c
}

// shapeOfCodes returns the shape that a weight is decoded in. Reshape may give it another one.
func shapeOfCodes(w *recognize.Weight) []int64 {
	if w.Constant == nil || w.Constant.Decoder == nil || w.Constant.Decoder.X == nil {
		return w.Shape
	}
	return w.Constant.Decoder.X.Shape
}
