package qlora

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// LeastError returns a search for the scale of a block. It minimizes the squared error without making
// the block shorter. The error is never above that with the block's amax as scale.
func (c Codec) LeastError() *blocks.Search {
	nearest, typ := tables[c.Table].nearest, blocks.Type(c.Type)
	s := &blocks.Search{
		Scale: func(amax float32) float32 { return amax },
		Tries: blocks.AnyScale(c.Type), Values: &nearest.Values, Codes: 16, Outer: 1,
		Type: c.Type, Free: true, Store: c.Type.Round,
		Quantize: func(q []byte, x, scale []float32, errors *kernels.ErrorSums) {
			kernels.QuantizeNearestBlock(q, x, scale, nearest, typ, errors)
		},
		Errors: func(e []float64, x, scales []float32) { kernels.TryNearest(e, x, scales, nearest, typ) },
	}
	if c.Reciprocal {
		s.Plain = func(q []byte, x, scale []float32) float64 {
			return c.QuantizeBlocks(q, x, scale, nil, len(x), len(x)).SumSqErr
		}
	}
	return s
}
