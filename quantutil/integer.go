package quantutil

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
)

// clipMin is the smallest scale, or with a zero point the smallest range.
const clipMin = 1e-5

// FindScales returns the scales, and with useZeroPoint the zero points, for
// numBits codes of w in blocks along an axis.
//
// Without zero points, where amax is the block's largest magnitude,
//
//	scale = max(amax*alpha / (2^(numBits-1)-1), 1e-5)
//
// Alpha below 1 clips outliers. As in the reference, alpha is not checked: 0 or less gives
// the smallest scale, NaN a scale of NaN. With zero points, which are floats and take no
// notice of alpha,
//
//	scale = max(max-min, 1e-5) / (2^numBits-1)
//	zp = clip(-rint(min/scale), 0, 2^numBits-1)
//
// The range is not widened to contain 0: a block that does not reach 0 has its
// zero point clipped, and most of its codes saturate. NaN or -Inf in a block
// with a zero point is an error; other non-finite values give a scale of Inf or
// NaN.
func FindScales(w *Tensor, block, axis int, alpha float64, useZeroPoint bool, numBits int) (scale, zp *Tensor, err error) {
	if err := checkBlocks(w, block, axis); err != nil {
		return nil, nil, err
	}
	if err := checkBits(numBits); err != nil {
		return nil, nil, err
	}
	lo, hi, err := blockRanges(w, block, axis)
	if err != nil {
		return nil, nil, err
	}
	t := Promote(w.DType, pythonFloat(w.DType))
	scale = &Tensor{DType: t, Shape: lo.Shape, Data: make([]float64, len(lo.Data))}
	if !useZeroPoint {
		steps := float64(int(1)<<(numBits-1) - 1)
		alpha = round(t, alpha)
		for i := range scale.Data {
			amax := max(math.Abs(lo.Data[i]), math.Abs(hi.Data[i]))
			scale.Data[i] = max(round(t, round(t, amax*alpha)/steps), round(t, clipMin))
		}
		return scale, nil, nil
	}
	steps := float64(int(1)<<numBits - 1)
	zp = &Tensor{DType: t, Shape: slices.Clone(lo.Shape), Data: make([]float64, len(lo.Data))}
	for i, l := range lo.Data {
		span := round(w.DType, hi.Data[i]-l)
		s := round(t, max(span, round(t, clipMin))/steps)
		z := min(max(-math.RoundToEven(round(t, l/s)), 0), steps)
		if math.IsNaN(z) {
			return nil, nil, fmt.Errorf("a block from %v to %v has no zero point", l, hi.Data[i])
		}
		scale.Data[i], zp.Data[i] = s, z
	}
	return scale, zp, nil
}

// RTN rounds w to the nearest numBits codes for the scales and zero points, if
// not nil, of its blocks. The result is of type Int8.
//
// Without zero points code = clip(rint(w/s), -2^(numBits-1), 2^(numBits-1)-1),
// with them clip(rint(w/s)+zp, 0, 2^numBits-1). Ties go to even. Codes from 128
// up, of 8 bits with a zero point, wrap to negative numbers.
func RTN(w, scale *Tensor, block, axis int, zp *Tensor, numBits int) (*Tensor, error) {
	if err := checkBits(numBits); err != nil {
		return nil, err
	}
	if err := checkBlocks(w, block, axis); err != nil {
		return nil, err
	}
	s, err := expand(scale, w.Shape, block, axis)
	if err != nil {
		return nil, fmt.Errorf("scale: %w", err)
	}
	t := Promote(w.DType, scale.DType)
	q := &Tensor{DType: dtype.Int8, Shape: slices.Clone(w.Shape), Data: make([]float64, len(w.Data))}
	if zp == nil {
		n := float64(int(1) << (numBits - 1))
		for i, v := range w.Data {
			c := math.RoundToEven(round(t, v/s[i]))
			q.Data[i] = round(dtype.Int8, min(max(c, -n), n-1))
		}
		return q, nil
	}
	z, err := expand(zp, w.Shape, block, axis)
	if err != nil {
		return nil, fmt.Errorf("zero point: %w", err)
	}
	tz := Promote(t, zp.DType)
	n := float64(int(1)<<numBits - 1)
	for i, v := range w.Data {
		c := round(tz, math.RoundToEven(round(t, v/s[i]))+z[i])
		q.Data[i] = round(dtype.Int8, min(max(c, 0), n))
	}
	return q, nil
}

// QuantTensor returns the scales and zero points that FindScales finds and the
// codes that RTN then gives. zp is nil without useZeroPoint.
func QuantTensor(w *Tensor, block, axis int, alpha float64, useZeroPoint bool, numBits int) (wq, scale, zp *Tensor, err error) {
	scale, zp, err = FindScales(w, block, axis, alpha, useZeroPoint, numBits)
	if err != nil {
		return nil, nil, nil, err
	}
	wq, err = RTN(w, scale, block, axis, zp, numBits)
	return wq, scale, zp, err
}

// DQTensor returns (wq - zp) * scale for codes in blocks along an axis; zp may be
// nil. The result has the type in which the three meet. Codes of 8 bits with a
// zero point that RTN wrapped to negative numbers come out 256 scales too low.
func DQTensor(wq, scale *Tensor, block, axis int, zp *Tensor) (*Tensor, error) {
	if err := wq.check(); err != nil {
		return nil, err
	}
	if err := checkBlock(wq.Shape, block, axis); err != nil {
		return nil, err
	}
	s, err := expand(scale, wq.Shape, block, axis)
	if err != nil {
		return nil, fmt.Errorf("scale: %w", err)
	}
	w := &Tensor{DType: wq.DType, Shape: slices.Clone(wq.Shape), Data: slices.Clone(wq.Data)}
	if zp != nil {
		z, err := expand(zp, wq.Shape, block, axis)
		if err != nil {
			return nil, fmt.Errorf("zero point: %w", err)
		}
		w.DType = Promote(wq.DType, zp.DType)
		for i, v := range w.Data {
			w.Data[i] = round(w.DType, v-z[i])
		}
	}
	w.DType = Promote(w.DType, scale.DType)
	for i, v := range w.Data {
		w.Data[i] = round(w.DType, v*s[i])
	}
	return w, nil
}

// pythonFloat is the type that a Python float takes when it meets one of type t.
func pythonFloat(t dtype.DType) dtype.DType {
	if t == dtype.BFloat16 {
		return dtype.Float32
	}
	return t
}

// blockRanges returns the least and the greatest value of each block, which has
// the padding's zeros in it. A NaN makes both NaN.
func blockRanges(w *Tensor, block, axis int) (lo, hi *Tensor, err error) {
	last := len(w.Shape) - 1
	if axis != 0 && axis != last {
		if w.Shape[last]%block != 0 {
			return nil, nil, fmt.Errorf("blocks of %d do not divide the last axis of %v", block, w.Shape)
		}
		w, axis = pad(w, block, axis), last
	}
	outer, length, inner := split(w.Shape, axis)
	n := ceilDiv(length, block)
	shape := slices.Clone(w.Shape)
	shape[axis] = n
	lo = &Tensor{DType: w.DType, Shape: shape, Data: make([]float64, outer*n*inner)}
	hi = &Tensor{DType: w.DType, Shape: slices.Clone(shape), Data: make([]float64, outer*n*inner)}
	for i := range lo.Data {
		o, b, col := i/(n*inner), i/inner%n, i%inner
		start, end := b*block, length
		l, h := 0.0, 0.0 // of the padding
		if block <= length-start {
			end = start + block
			l, h = math.Inf(1), math.Inf(-1)
		}
		for k := start; k < end; k++ {
			v := w.Data[(o*length+k)*inner+col]
			l, h = min(l, v), max(h, v)
		}
		lo.Data[i], hi.Data[i] = l, h
	}
	return lo, hi, nil
}

// pad returns w with zeros after the end of an axis, up to a multiple of block.
func pad(w *Tensor, block, axis int) *Tensor {
	outer, length, inner := split(w.Shape, axis)
	shape := slices.Clone(w.Shape)
	shape[axis] = ceilDiv(length, block) * block
	p := &Tensor{DType: w.DType, Shape: shape, Data: make([]float64, outer*shape[axis]*inner)}
	if len(w.Data) == 0 {
		return p
	}
	for o := range outer {
		copy(p.Data[o*shape[axis]*inner:], w.Data[o*length*inner:][:length*inner])
	}
	return p
}

// expand returns an element of s for each element of a tensor of that shape. The
// padded axis is divided evenly among the elements of s along it; along another
// axis s has the same length or 1.
func expand(s *Tensor, shape []int, block, axis int) ([]float64, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	bad := fmt.Errorf("shape %v does not fit %v in blocks of %d along axis %d", s.Shape, shape, block, axis)
	if len(s.Shape) != len(shape) {
		return nil, bad
	}
	step := make([]int, len(shape)) // elements of the tensor per element of s
	for a, n := range shape {
		m := s.Shape[a]
		if a == axis {
			n = ceilDiv(n, block) * block
		}
		switch {
		case m == 0 && n == 0:
			step[a] = 1
		case m == 0 || n%m != 0 || a != axis && m != n && m != 1:
			return nil, bad
		default:
			step[a] = max(n/m, 1)
		}
	}
	total, _ := elements(shape)
	out := make([]float64, total)
	at := make([]int, len(shape))
	for i := range out {
		j := 0
		for a, k := range at {
			j = j*s.Shape[a] + k/step[a]
		}
		out[i] = s.Data[j]
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
	return out, nil
}

// checkBlocks reports a tensor that is not of floats or cannot be cut so.
func checkBlocks(w *Tensor, block, axis int) error {
	if err := w.checkFloat(); err != nil {
		return err
	}
	return checkBlock(w.Shape, block, axis)
}

func checkBlock(shape []int, block, axis int) error {
	if axis < 0 || axis >= len(shape) {
		return fmt.Errorf("axis %d of a tensor of shape %v: want 0 … %d", axis, shape, len(shape)-1)
	}
	if block < 1 {
		return fmt.Errorf("block size %d: want at least 1; see UpdateBlockSize for -1", block)
	}
	return nil
}

func checkBits(n int) error {
	if n < 2 || n > 8 {
		return fmt.Errorf("codes of %d bits: want 2 … 8", n)
	}
	return nil
}
