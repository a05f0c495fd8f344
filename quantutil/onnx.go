package quantutil

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
)

// QuantizeLinear returns the integer codes that ONNX's operator of that name gives
// x (opsets 10 to 25), in a tensor of type Int8 or Uint8:
//
//	y = saturate(rint(x / scale) + zeroPoint)
//
// Codes have 2, 4 or 8 bits; signed ones are -2^(bits-1) … 2^(bits-1)-1, others
// 0 … 2^bits-1. The quotient is rounded to the type in which x and scale meet, then
// to an integer, ties to even. The standard leaves NaN open; it counts as 0.
//
// A scale of one element is for all of x. With a block of 0 a vector of scales is
// along an axis; else scale has the shape of x with that axis divided by the block
// size, rounded up. The axis counts from the end if negative. zeroPoint is nil or
// has the shape of scale.
func QuantizeLinear(x, scale, zeroPoint *Tensor, axis, block, bits int, signed bool) (*Tensor, error) {
	if err := x.checkFloat(); err != nil {
		return nil, err
	}
	if bits != 2 && bits != 4 && bits != 8 {
		return nil, fmt.Errorf("codes of %d bits: want 2, 4 or 8", bits)
	}
	s, z, err := parameters(x.Shape, scale, zeroPoint, axis, block)
	if err != nil {
		return nil, err
	}
	lo, hi, codes := 0.0, float64(int(1)<<bits-1), dtype.Uint8
	if signed {
		half := float64(int(1) << (bits - 1))
		lo, hi, codes = -half, half-1, dtype.Int8
	}
	t := Promote(x.DType, scale.DType)
	y := &Tensor{DType: codes, Shape: slices.Clone(x.Shape), Data: make([]float64, len(x.Data))}
	for i, v := range x.Data {
		c := math.RoundToEven(round(t, v/s(i)))
		if math.IsNaN(c) {
			c = 0
		}
		y.Data[i] = min(max(c+z(i), lo), hi)
	}
	return y, nil
}

// DequantizeLinear returns what ONNX's operator of that name makes of integers y
// (opsets 10 to 25), (y - zeroPoint) * scale, in a tensor of the type of scale. The
// difference is taken in float32, as the product is before it is rounded to that
// type. Scales, blocks and zero points are as in QuantizeLinear.
func DequantizeLinear(y, scale, zeroPoint *Tensor, axis, block int) (*Tensor, error) {
	if err := y.check(); err != nil {
		return nil, err
	}
	if y.DType.Float() {
		return nil, fmt.Errorf("codes of type %s: want integers", TypeName(y.DType))
	}
	s, z, err := parameters(y.Shape, scale, zeroPoint, axis, block)
	if err != nil {
		return nil, err
	}
	x := &Tensor{DType: scale.DType, Shape: slices.Clone(y.Shape), Data: make([]float64, len(y.Data))}
	product := Promote(scale.DType, dtype.Float32)
	for i, v := range y.Data {
		x.Data[i] = round(x.DType, round(product, float64(float32(v-z(i)))*s(i)))
	}
	return x, nil
}

// parameters returns the scale and the zero point of each element of a shape.
func parameters(shape []int, scale, zeroPoint *Tensor, axis, block int) (s, z func(int) float64, err error) {
	if err := scale.checkFloat(); err != nil {
		return nil, nil, fmt.Errorf("scale: %w", err)
	}
	at, err := scaleIndex(shape, scale, axis, block)
	if err != nil {
		return nil, nil, err
	}
	s = func(i int) float64 { return scale.Data[at(i)] }
	if zeroPoint == nil {
		return s, func(int) float64 { return 0 }, nil
	}
	if err := zeroPoint.check(); err != nil {
		return nil, nil, fmt.Errorf("zero point: %w", err)
	}
	if !slices.Equal(zeroPoint.Shape, scale.Shape) {
		return nil, nil, fmt.Errorf("zero point of shape %v beside a scale of shape %v", zeroPoint.Shape, scale.Shape)
	}
	return s, func(i int) float64 { return zeroPoint.Data[at(i)] }, nil
}

// scaleIndex returns what maps the index of an element of a shape to that of its
// scale.
func scaleIndex(shape []int, scale *Tensor, axis, block int) (func(int) int, error) {
	if len(scale.Data) == 1 {
		return func(int) int { return 0 }, nil
	}
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) || block < 0 {
		return nil, fmt.Errorf("blocks of %d along axis %d of a tensor of shape %v", block, axis, shape)
	}
	_, length, inner := split(shape, axis)
	want := slices.Clone(shape)
	index := func(i int) int { return i / inner % length }
	if block == 0 {
		want = []int{length}
	} else {
		n := ceilDiv(length, block)
		want[axis] = n
		index = func(i int) int {
			return (i/(length*inner)*n+i/inner%length/block)*inner + i%inner
		}
	}
	if !slices.Equal(scale.Shape, want) {
		return nil, fmt.Errorf("scale of shape %v for a tensor of shape %v: want %v", scale.Shape, shape, want)
	}
	return index, nil
}
