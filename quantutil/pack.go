package quantutil

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// PackFloat32To4BitOptimized clips values to -8 … 7 if signed, else to 0 … 15, rounds
// them to integers, ties to even, and packs them two per byte: the element of even index
// in the low nibble. If their number is odd, the last high nibble is 0; the reference
// fails on an odd number of bfloat16 values, and so does this. NaN becomes 0.
//
// The result is of type Uint8, with one axis.
func PackFloat32To4BitOptimized(array *Tensor, signed bool) (*Tensor, error) {
	if err := array.check(); err != nil {
		return nil, err
	}
	if array.DType == dtype.BFloat16 && len(array.Data)%2 != 0 {
		return nil, fmt.Errorf("an odd number of bfloat16 values (%d) cannot be packed", len(array.Data))
	}
	return pack4(array, signed, math.RoundToEven), nil
}

// PackFloat32To4BitCppBased is PackFloat32To4BitOptimized as the reference's
// compiled extension does it: ties go away from zero and NaN becomes the greatest
// code. Int32 and bfloat16 values, which the extension does not take, are packed
// in the other way, any number of them.
func PackFloat32To4BitCppBased(array *Tensor, signed bool) (*Tensor, error) {
	if err := array.check(); err != nil {
		return nil, err
	}
	if array.DType == dtype.Int32 || array.DType == dtype.BFloat16 {
		return pack4(array, signed, math.RoundToEven), nil
	}
	_, top := limits4(signed)
	return pack4(array, signed, func(v float64) float64 {
		if math.IsNaN(v) {
			return top
		}
		return math.Round(v)
	}), nil
}

// PackWeightsToInt4 packs signed codes as PackFloat32To4BitOptimized does, into a
// tensor of type Uint8 whose first dimension is half of the weight's, and so must
// be even there. The nibbles of a byte are neighbours in C order all the same,
// that is, along the last axis.
func PackWeightsToInt4(weight *Tensor) (*Tensor, error) {
	if err := weight.check(); err != nil {
		return nil, err
	}
	if len(weight.Shape) == 0 || weight.Shape[0]%2 != 0 {
		return nil, fmt.Errorf("weight of shape %v: the first dimension must be even to be packed", weight.Shape)
	}
	packed := pack4(weight, true, math.RoundToEven)
	packed.Shape = slices.Clone(weight.Shape)
	packed.Shape[0] /= 2
	return packed, nil
}

func limits4(signed bool) (lo, hi float64) {
	if signed {
		return -8, 7
	}
	return 0, 15
}

// pack4 clips, rounds and packs values.
func pack4(x *Tensor, signed bool, integer func(float64) float64) *Tensor {
	lo, hi := limits4(signed)
	codes := make([]byte, len(x.Data))
	for i, v := range x.Data {
		codes[i] = byte(round(dtype.Int8, integer(min(max(v, lo), hi))))
	}
	packed := make([]byte, (len(codes)+1)/2)
	kernels.Pack4(packed, codes)
	out := &Tensor{DType: dtype.Uint8, Shape: []int{len(packed)}, Data: make([]float64, len(packed))}
	for i, b := range packed {
		out.Data[i] = float64(b)
	}
	return out
}
