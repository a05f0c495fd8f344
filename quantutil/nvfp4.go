package quantutil

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
)

// GetWeightsScalingFactor2 returns the NVFP4 scale of a whole tensor, its largest
// magnitude in float32 divided by 448*6, or 1 if that is 0. It fails if the
// magnitude is not finite.
func GetWeightsScalingFactor2(w *Tensor) (float32, error) {
	if err := w.checkFloat(); err != nil {
		return 0, err
	}
	amax := 0.0
	for _, v := range w.Data {
		amax = max(amax, math.Abs(v))
	}
	s := float32(amax) / (e4m3Max * e2m1Max)
	if s == 0 {
		return 1, nil
	}
	if math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) {
		return 0, fmt.Errorf("a weight with a largest magnitude of %v has no NVFP4 scale", amax)
	}
	return s, nil
}

// GetWeightsScalingFactor returns the scales, in float32 and not yet rounded to
// E4M3, of NVFP4 blocks along the last of two axes, which the block size divides:
// the block's largest magnitude divided by 6*scale2, or 1 if that is 0. Scales may
// be infinite or NaN.
func GetWeightsScalingFactor(w *Tensor, block int, scale2 float32) (*Tensor, error) {
	if err := w.checkFloat(); err != nil {
		return nil, err
	}
	if len(w.Shape) != 2 {
		return nil, fmt.Errorf("weight of shape %v: NVFP4 wants two axes", w.Shape)
	}
	s, err := GetAmaxContiguous(w, 1, block)
	if err != nil {
		return nil, err
	}
	s.DType = dtype.Float32
	d := float32(e2m1Max * scale2)
	for i, amax := range s.Data {
		v := float32(amax) / d
		if v == 0 {
			v = 1
		}
		s.Data[i] = float64(v)
	}
	return s, nil
}

// Quantize returns w divided by the product, in float32, of its blocks' scales
// and the tensor's, ready to be rounded to E2M1: the reference's NVFP4 quantize.
// The result is float64 for float64 weights, else float32.
func Quantize(w *Tensor, block int, scale *Tensor, scale2 float32) (*Tensor, error) {
	if err := w.checkFloat(); err != nil {
		return nil, err
	}
	if err := scale.checkFloat(); err != nil {
		return nil, fmt.Errorf("scale: %w", err)
	}
	shape, _, err := blockShape(w.Shape, -1, block)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(scale.Shape, shape) {
		return nil, fmt.Errorf("scale of shape %v for a weight of shape %v in blocks of %d", scale.Shape, w.Shape, block)
	}
	q := &Tensor{DType: Promote(w.DType, dtype.Float32), Shape: slices.Clone(w.Shape), Data: make([]float64, len(w.Data))}
	for i, v := range w.Data {
		d := float64(float32(scale.Data[i/block]) * scale2)
		q.Data[i] = round(q.DType, v/d)
	}
	return q, nil
}
