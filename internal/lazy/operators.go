package lazy

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/formats/mx"
)

// Constant returns a tensor whose elements are all v.
func Constant(v float32, typ dtype.DType) *Tensor {
	return &Tensor{DType: typ, Read: func(_ *Arena, dst []float32, _ int64) error {
		for i := range dst {
			dst[i] = v
		}
		return nil
	}}
}

// Cast returns the elements in another type, rounded to it.
func (x *Tensor) Cast(to dtype.DType) *Tensor {
	return &Tensor{DType: to, Shape: x.Shape, Read: func(a *Arena, dst []float32, off int64) error {
		if err := x.Read(a, dst, off); err != nil {
			return err
		}
		to.RoundAll(dst)
		return nil
	}}
}

// combined applies do to each element of x with its scale and, if zero is not nil, its zero point, and
// rounds the result to typ. do changes x in place; the scale and zero point of x[i] are at i*step.
func combined(x, scale, zero *Tensor, s ScaleMap, typ dtype.DType, do func(x, scale, zero []float32, step int64)) *Tensor {
	var read func(a *Arena, dst []float32, off int64) error
	read = func(a *Arena, dst []float32, off int64) error {
		n := int64(len(dst))
		if n == 0 {
			return nil
		}
		first, count := s.extent(off, n)
		if count > 4*MaxRead && n > 1 { // scales of inner columns: far more than elements, so read less at once
			if err := read(a, dst[:n/2], off); err != nil {
				return err
			}
			return read(a, dst[n/2:], off+n/2)
		}
		if err := x.Read(a, dst, off); err != nil {
			return err
		}
		scales, release := a.Float32s(int(count))
		defer release()
		if err := scale.Read(a, scales, first); err != nil {
			return err
		}
		var zeros []float32
		if zero != nil {
			var release func()
			zeros, release = a.Float32s(int(count))
			defer release()
			if err := zero.Read(a, zeros, first); err != nil {
				return err
			}
		}
		for r := range s.runs(off, n) {
			at := r.first - first
			end := at + (r.n-1)*r.step + 1
			var z []float32
			if zero != nil {
				z = zeros[at:end]
			}
			do(dst[r.from:r.from+r.n], scales[at:end], z, r.step)
		}
		typ.RoundAll(dst)
		return nil
	}
	return &Tensor{DType: typ, Shape: x.Shape, Read: read}
}

// Dequantized is (x - zero) · scale, computed in float32 and rounded to typ. zero may be nil.
func Dequantized(x, scale, zero *Tensor, s ScaleMap, typ dtype.DType) *Tensor {
	return combined(x, scale, zero, s, typ, func(x, scale, zero []float32, step int64) {
		switch {
		case step == 0 && zero == nil:
			for i := range x {
				x[i] *= scale[0]
			}
		case step == 0:
			for i := range x {
				x[i] = (x[i] - zero[0]) * scale[0]
			}
		case zero == nil:
			for i := range x {
				x[i] *= scale[i]
			}
		default:
			for i := range x {
				x[i] = (x[i] - zero[i]) * scale[i]
			}
		}
	})
}

// Quantized returns the codes of floats x as QuantizeLinear computes them: the quotient is rounded to
// the type of x, then to a code. ok is false if codes is not a type of codes.
func Quantized(x, scale, zero *Tensor, s ScaleMap, codes dtype.DType, saturate bool) (*Tensor, bool) {
	typ := x.DType
	encode := func(v, zero float32) float32 { return 0 }
	lo, hi := codes.Limits()
	format, float8 := Float8Types[codes]
	switch {
	case codes.Integer():
		encode = func(v, zero float32) float32 {
			c := float32(math.RoundToEven(float64(v)))
			if c != c {
				c = 0
			}
			return min(max(c+zero, float32(lo)), float32(hi))
		}
	case float8:
		encode = func(v, _ float32) float32 { return format.Decode(format.Encode(v, saturate)) }
	case codes == dtype.Float4E2M1:
		encode = func(v, _ float32) float32 { return mx.DecodeE2M1(mx.EncodeE2M1(v)) }
	default:
		return nil, false
	}
	return combined(x, scale, zero, s, codes, func(x, scale, zero []float32, step int64) {
		for i, v := range x {
			z, at := float32(0), int64(i)*step
			if zero != nil {
				z = zero[at]
			}
			x[i] = encode(typ.Round(v/scale[at]), z)
		}
	}), true
}

// Minus is x - y, rounded to their type. s says which element of y goes with each of x.
func (x *Tensor) Minus(y *Tensor, s ScaleMap) *Tensor {
	return combined(x, y, nil, s, x.DType, func(x, y, _ []float32, step int64) {
		for i := range x {
			x[i] -= y[int64(i)*step]
		}
	})
}

// Spread repeats the elements of x over a shape, as s says.
func (x *Tensor) Spread(s ScaleMap, shape []int64) *Tensor {
	nothing := Constant(0, x.DType)
	nothing.Shape = shape
	return combined(nothing, x, nil, s, x.DType, func(x, y, _ []float32, step int64) {
		for i := range x {
			x[i] = y[int64(i)*step]
		}
	})
}

// LookedUp returns table[at[i]] for each i. Negative indices count from the end.
func LookedUp(table []float32, at *Tensor, typ dtype.DType) *Tensor {
	return &Tensor{DType: typ, Shape: at.Shape, Read: func(a *Arena, dst []float32, off int64) error {
		if err := at.Read(a, dst, off); err != nil {
			return err
		}
		for i, v := range dst {
			k := int(v)
			if k < 0 {
				k += len(table)
			}
			if k < 0 || k >= len(table) {
				return fmt.Errorf("code %d at element %d, but its table has %d values", int(v), off+int64(i), len(table))
			}
			dst[i] = table[k]
		}
		return nil
	}}
}
