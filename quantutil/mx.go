package quantutil

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
)

// e4m3Max is the largest E4M3 number, e2m1Max the largest E2M1 number.
const (
	e4m3Max = 448
	e2m1Max = 6
)

// e8m0Bias is what an E8M0 code exceeds its exponent by.
const e8m0Bias = 127

// GetAmax returns the largest magnitude of each block along an axis of a weight
// with two or three axes, as the reference does; -1 is the last axis. The block
// size divides the axis. The result of a weight [d0, d1] has one axis; that of
// [d0, d1, d2] has the shape [d0*d1/block, d2] or [d0, d1*d2/block].
//
// On axis 0 of two the blocks are not contiguous: block g holds the rows whose
// number modulo d0/block is g. ComputeE8M0 and the reference's exporter then take
// the result for that of contiguous rows; GetAmaxContiguous is what is meant.
//
// Of integers it is what numpy computes in their type, where the magnitude of the least
// number, such as -128 of int8, is that number itself.
func GetAmax(w *Tensor, axis, block int) (*Tensor, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	rank := len(w.Shape)
	if rank != 2 && rank != 3 {
		return nil, fmt.Errorf("weight of shape %v: want two or three axes", w.Shape)
	}
	if axis < -1 || rank == 3 && axis == 0 {
		return nil, fmt.Errorf("blocks along axis %d of a weight of shape %v are not supported", axis, w.Shape)
	}
	amax, err := GetAmaxContiguous(w, axis, block)
	if err != nil {
		return nil, err
	}
	n := len(amax.Data)
	switch {
	case rank == 2 && axis == 0:
		for i := range amax.Data {
			amax.Data[i] = math.Inf(-1)
		}
		for i, v := range w.Data {
			amax.Data[i%n] = max(amax.Data[i%n], round(w.DType, math.Abs(v)))
		}
		amax.Shape = []int{n}
	case rank == 2:
		amax.Shape = []int{n}
	case axis == 1:
		amax.Shape = []int{amax.Shape[0] * amax.Shape[1], amax.Shape[2]}
	default:
		amax.Shape = []int{amax.Shape[0], amax.Shape[1] * amax.Shape[2]}
	}
	return amax, nil
}

// GetAmaxContiguous returns the largest magnitude of each block of neighbours
// along an axis, which counts from the end if negative and which the block size
// divides. The result has the weight's shape with that axis divided.
func GetAmaxContiguous(w *Tensor, axis, block int) (*Tensor, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	shape, axis, err := blockShape(w.Shape, axis, block)
	if err != nil {
		return nil, err
	}
	_, _, inner := split(w.Shape, axis)
	n, _ := elements(shape)
	amax := &Tensor{DType: w.DType, Shape: shape, Data: make([]float64, n)}
	for i := range amax.Data {
		amax.Data[i] = math.Inf(-1)
	}
	for i, v := range w.Data {
		b := i/(block*inner)*inner + i%inner
		amax.Data[b] = max(amax.Data[b], round(w.DType, math.Abs(v)))
	}
	return amax, nil
}

// ComputeE8M0 returns the E8M0 codes, 0 … 255, of the scales by which blocks of
// these largest magnitudes fit E4M3 numbers:
//
//	ceil(max(log2(amax/448), -127)) + 127
//
// Each step is rounded to the type of amax, log2 before ceil too: a quotient just
// above a power of two may have the code of the power. Integers are divided in
// float64. Codes come as floats, in the shape of the weight with its axis divided
// by the block size. A scale beyond the codes, and a magnitude that is negative, infinite or NaN, is an error.
func ComputeE8M0(amax *Tensor, weightShape []int, axis, block int) (*Tensor, error) {
	if err := amax.check(); err != nil {
		return nil, err
	}
	shape, _, err := blockShape(weightShape, axis, block)
	if err != nil {
		return nil, err
	}
	if n, err := elements(shape); err != nil || n != len(amax.Data) {
		return nil, fmt.Errorf("%d magnitudes for a weight of shape %v in blocks of %d along axis %d", len(amax.Data), weightShape, block, axis)
	}
	t := amax.DType
	if !t.Float() {
		t = dtype.Float64
	}
	e := &Tensor{DType: pythonFloat(t), Shape: shape, Data: make([]float64, len(amax.Data))}
	for i, a := range amax.Data {
		c := math.Ceil(max(round(t, math.Log2(round(t, a/e4m3Max))), -e8m0Bias)) + e8m0Bias
		if !(c >= 0 && c <= math.MaxUint8) {
			return nil, fmt.Errorf("a block of magnitude %v has no E8M0 scale", a)
		}
		e.Data[i] = c
	}
	return e, nil
}

// blockShape returns the shape of one value per block along an axis, and that
// axis counted from the start.
func blockShape(shape []int, axis, block int) ([]int, int, error) {
	n, err := dimension(shape, axis)
	if err != nil {
		return nil, 0, err
	}
	if block < 1 || n%block != 0 {
		return nil, 0, fmt.Errorf("blocks of %d do not divide axis %d of %v", block, axis, shape)
	}
	if axis < 0 {
		axis += len(shape)
	}
	s := slices.Clone(shape)
	s[axis] /= block
	return s, axis, nil
}
