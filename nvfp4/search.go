package nvfp4

import (
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// The scales that LeastError tries, in steps of E4M3 below and above the scale of Scales. They go from
// two thirds of it, which clips, to one and a half, where the largest magnitude becomes 4 instead of
// 6.
const (
	stepsDown = 5
	stepsUp   = 6
)

// LeastError returns a search for the scale of a block. It minimizes the squared error without making
// the block shorter. It tries the scale of Scales and its neighbours.
func (c Codec) LeastError() *blocks.Search {
	typ := blocks.Type(c.Type)
	return &blocks.Search{
		Scale: c.scale, Values: &kernels.E2M1.Values, Codes: 16, Outer: c.TensorScale, Type: c.Type,
		Quantize: func(q []byte, x, scale []float32, errors *kernels.ErrorSums) {
			kernels.QuantizeFloatBlock(q, x, scale, c.TensorScale, kernels.SignlessE2M1, typ, errors)
		},
		Errors: func(e []float64, x, scales []float32) {
			kernels.TryFloat(e, x, scales, c.TensorScale, kernels.SignlessE2M1, typ)
		},
		Store: func(scale float32) float32 { return kernels.E4M3FN.Values[ScaleByte(scale)] },
		Tries: func(scales []float32, scale float32) []float32 {
			at := int(ScaleByte(scale))
			for code := max(at-stepsDown, 1); code <= min(at+stepsUp, int(kernels.E4M3FN.Top)); code++ {
				if code != at {
					scales = append(scales, kernels.E4M3FN.Values[code])
				}
			}
			return scales
		},
	}
}
