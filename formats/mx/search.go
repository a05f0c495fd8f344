package mx

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// LeastError returns a search for the scale of a block. It minimizes the squared error without making
// the block shorter. It tries the scale of Scales, half of it and twice as much.
func (c Codec) LeastError() *blocks.Search {
	kind, typ := formats[c.Format].kind, blocks.Type(c.Type)
	codes := 256
	if c.Format == MXFP4 {
		codes = 16
	}
	return &blocks.Search{
		Scale: c.scale, Values: &kind.Values, Codes: codes, Outer: 1, Type: c.Type,
		Quantize: func(q []byte, x, scale []float32, errors *kernels.ErrorSums) {
			kernels.QuantizeFloatBlock(q, x, scale, 1, kind, typ, errors)
		},
		Errors: func(e []float64, x, scales []float32) {
			kernels.TryFloat(e, x, scales, 1, kind, typ)
		},
		Store: func(scale float32) float32 { return DecodeE8M0(EncodeE8M0(scale, Nearest, true)) },
		Tries: func(scales []float32, scale float32) []float32 { return append(scales, scale/2, scale*2) },
	}
}
