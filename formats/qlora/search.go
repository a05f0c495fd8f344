package qlora

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// LeastError returns the search for the scale of a block whose codes have a small squared error
// and are not shorter than the block. The error is never above that of the block's amax as scale.
func (c Codec) LeastError() *blocks.Search {
	nearest, typ := tables[c.Table].nearest, blocks.Type(c.Type)
	return &blocks.Search{
		Rule: c, Tries: blocks.AnyScale(c.Type), Values: &nearest.Values, Codes: 16, Outer: 1,
		Type: c.Type, Free: true, Store: c.Type.Round,
		Quantize: func(q []byte, x, scale []float32, errors *kernels.ErrorSums) {
			kernels.QuantizeNearestBlock(q, x, scale, nearest, typ, errors)
		},
	}
}
