package fp8

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// LeastError returns a search for the scale of a block. It minimizes the squared error without making
// the block shorter. The error is never above that of Scales.
func (c Codec) LeastError() *blocks.Search {
	kind, typ := formats[c.Format].kind, blocks.Type(c.Type)
	return &blocks.Search{
		Scale: func(amax float32) float32 { return scaleFor(c.Type, amax, c.Format.Max()) },
		Tries: blocks.AnyScale(c.Type), Values: &kind.Values, Codes: 256, Outer: 1,
		Type: c.Type, Free: true, Store: c.Type.Round,
		Quantize: func(q []byte, x, scale []float32, errors *kernels.ErrorSums) {
			kernels.QuantizeFloatBlock(q, x, scale, 1, kind, typ, errors)
		},
		Errors: func(e []float64, x, scales []float32) {
			kernels.TryFloat(e, x, scales, 1, kind, typ)
		},
	}
}
