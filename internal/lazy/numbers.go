package lazy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

// Tensor is a constant tensor whose elements are computed as they are asked
// for, so that it takes no memory. They are given as float32, which has every
// number that quantized weights are made of; an int32 beyond 2^24 is rounded, as
// DequantizeLinear does.
type Tensor struct {
	DType dtype.DType
	Shape []int64
	Read  func(a *Arena, dst []float32, off int64) error

	Stored io.ReaderAt // where the elements are stored as they are; nil if they are computed
}

// Size is the number of elements.
func (x *Tensor) Size() int64 {
	n, _ := dtype.Elements(x.Shape)
	return n
}

// Arena lends buffers to one worker.
type Arena struct {
	floats [][]float32
	bytes  [][]byte
}

// MaxRead bounds the elements that are read at once, and so the buffers.
const MaxRead = 1 << 16

func (a *Arena) Float32s(n int) (s []float32, release func()) { return lend(&a.floats, n) }
func (a *Arena) raw(n int) (s []byte, release func())         { return lend(&a.bytes, n) }

func lend[T any](free *[][]T, n int) ([]T, func()) {
	var s []T
	if last := len(*free) - 1; last >= 0 {
		s, *free = (*free)[last], (*free)[:last]
	}
	if cap(s) < n {
		s = make([]T, n)
	}
	return s[:n], func() { *free = append(*free, s) }
}

var Float8Types = map[dtype.DType]fp8.Format{
	dtype.Float8E4M3FN:   fp8.E4M3FN,
	dtype.Float8E5M2:     fp8.E5M2,
	dtype.Float8E4M3FNUZ: fp8.E4M3FNUZ,
	dtype.Float8E5M2FNUZ: fp8.E5M2FNUZ,
}

// IntegerType reports whether the type is one of the integers that are read here.
func IntegerType(t dtype.DType) bool {
	return t.Integer() && t != dtype.Uint32 && t != dtype.Uint64
}

// CodeType reports whether codes of a weight may have the type.
func CodeType(t dtype.DType) bool {
	_, float8 := Float8Types[t]
	return IntegerType(t) && t != dtype.Int64 || float8 || t == dtype.Float4E2M1
}

// Stored are the elements of a tensor whose content r holds.
func Stored(typ dtype.DType, shape []int64, r io.ReaderAt) *Tensor {
	return &Tensor{DType: typ, Shape: shape, Stored: r, Read: func(a *Arena, dst []float32, off int64) error {
		return ReadNumbers(a, dst, r, typ, off)
	}}
}

// ReadNumbers reads elements of a type.
func ReadNumbers(a *Arena, dst []float32, r io.ReaderAt, typ dtype.DType, off int64) error {
	n := len(dst)
	switch typ {
	case dtype.Float32:
		raw := kernels.Bytes(dst)
		if err := buffer.ReadFull(r, raw, 4*off); err != nil {
			return err
		}
		typ.Decode(dst, raw)
		return nil
	case dtype.Int2, dtype.Uint2, dtype.Int4, dtype.Uint4, dtype.Int8, dtype.Uint8:
		signed := typ.Signed()
		q, release := a.raw(n)
		defer release()
		if err := readPacked(a, q, r, int(typ.Bits()), signed, off); err != nil {
			return err
		}
		for i, c := range q {
			if signed {
				dst[i] = float32(int8(c))
			} else {
				dst[i] = float32(c)
			}
		}
		return nil
	case dtype.Float4E2M1:
		q, release := a.raw(n)
		defer release()
		if err := readPacked(a, q, r, 4, false, off); err != nil {
			return err
		}
		for i, c := range q {
			dst[i] = mx.DecodeE2M1(c)
		}
		return nil
	}
	size := int(typ.Bits() / 8)
	raw, release := a.raw(n * size)
	defer release()
	if err := buffer.ReadFull(r, raw, off*int64(size)); err != nil {
		return err
	}
	switch typ {
	case dtype.Float16, dtype.BFloat16, dtype.Float64:
		typ.Decode(dst, raw)
	case dtype.Int16:
		for i := range dst {
			dst[i] = float32(int16(binary.LittleEndian.Uint16(raw[2*i:])))
		}
	case dtype.Uint16:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case dtype.Int32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	case dtype.Int64:
		for i := range dst {
			dst[i] = float32(int64(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	case dtype.Float8E8M0:
		for i, c := range raw {
			dst[i] = mx.DecodeE8M0(c)
		}
	default:
		f, ok := Float8Types[typ]
		if !ok {
			return fmt.Errorf("numbers of type %v", typ)
		}
		for i, c := range raw {
			dst[i] = f.Decode(c)
		}
	}
	return nil
}

// readPacked reads codes of 2, 4 or 8 bits that lie together, from element off on.
func readPacked(a *Arena, q []byte, r io.ReaderAt, bits int, signed bool, off int64) error {
	per := int64(8 / bits)
	head := int(off % per)
	raw, release := a.raw(int4.PackedLen(head+len(q), bits))
	defer release()
	if err := buffer.ReadFull(r, raw, off/per); err != nil {
		return err
	}
	return unpackFrom(a, q, raw, bits, signed, head)
}

// unpackFrom unpacks codes of which head lie before the first one wanted.
func unpackFrom(a *Arena, q, raw []byte, bits int, signed bool, head int) error {
	if head == 0 {
		int4.Unpack(q, raw, bits, signed)
		return nil
	}
	all, release := a.raw(head + len(q))
	defer release()
	int4.Unpack(all, raw, bits, signed)
	copy(q, all[head:])
	return nil
}

// Grid is a matrix of unsigned codes in a tensor of bytes, as com.microsoft's
// operators have them: each row begins a byte, and may be padded.
type Grid struct {
	Stored     io.ReaderAt
	Bits       int
	Rows, Cols int64
	Pitch      int64 // codes from the start of one row to that of the next
}

// Tensor gives the codes row by row, without the padding.
func (g Grid) Tensor() *Tensor {
	return &Tensor{DType: dtype.Uint8, Shape: []int64{g.Rows, g.Cols}, Read: func(a *Arena, dst []float32, off int64) error {
		q, release := a.raw(len(dst))
		defer release()
		if err := g.Read(a, q, off); err != nil {
			return err
		}
		for i, c := range q {
			dst[i] = float32(c)
		}
		return nil
	}}
}

// Read reads codes, counted without the padding.
func (g Grid) Read(a *Arena, q []byte, off int64) error {
	if g.Pitch == g.Cols {
		return readPacked(a, q, g.Stored, g.Bits, false, off)
	}
	per := int64(8 / g.Bits)
	at := func(i int64) int64 { return i/g.Cols*g.Pitch + i%g.Cols }
	if len(q) == 0 {
		return nil
	}
	// Rows are read together if little of that is padding.
	first, last := at(off), at(off+int64(len(q))-1)
	together := last-first <= 4*int64(len(q))
	var raw []byte
	if together {
		var release func()
		raw, release = a.raw(int(last/per - first/per + 1))
		defer release()
		if err := buffer.ReadFull(g.Stored, raw, first/per); err != nil {
			return err
		}
	}
	for from := int64(0); from < int64(len(q)); {
		n := min(g.Cols-(off+from)%g.Cols, int64(len(q))-from)
		code := at(off + from)
		part := q[from : from+n]
		var err error
		if together {
			err = unpackFrom(a, part, raw[code/per-first/per:], g.Bits, false, int(code%per))
		} else {
			err = readPacked(a, part, g.Stored, g.Bits, false, code)
		}
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// Constant is one number, whatever the element.
func Constant(v float32, typ dtype.DType) *Tensor {
	return &Tensor{DType: typ, Read: func(_ *Arena, dst []float32, _ int64) error {
		for i := range dst {
			dst[i] = v
		}
		return nil
	}}
}

// Reshaped gives the numbers another shape.
func (x *Tensor) Reshaped(shape []int64) *Tensor {
	return &Tensor{DType: x.DType, Shape: shape, Read: x.Read, Stored: x.Stored}
}

// Cast gives the numbers another type, to which floats are rounded.
func (x *Tensor) Cast(to dtype.DType) *Tensor {
	return &Tensor{DType: to, Shape: x.Shape, Read: func(a *Arena, dst []float32, off int64) error {
		if err := x.Read(a, dst, off); err != nil {
			return err
		}
		to.RoundAll(dst)
		return nil
	}}
}

// combined applies an operation to each element of x and its scale, and its zero
// point, which may be nil.
func combined(x, scale, zero *Tensor, s ScaleMap, typ dtype.DType, do func(x, scale, zero []float32, step int64)) *Tensor {
	var read func(a *Arena, dst []float32, off int64) error
	read = func(a *Arena, dst []float32, off int64) error {
		n := int64(len(dst))
		if n == 0 {
			return nil
		}
		first, count := s.extent(off, n)
		if count > 4*MaxRead && n > 1 { // a row of columns is longer than what is wanted of it
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

// Dequantized is (x - zero) · scale, computed in float32 and rounded to dtype.
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

// Quantized gives the codes of floats x, as QuantizeLinear does: the quotient is
// rounded to the type of x, then to one of the codes.
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

// Minus is x - y, y spread over x, rounded to their type.
func (x *Tensor) Minus(y *Tensor, s ScaleMap) *Tensor {
	return combined(x, y, nil, s, x.DType, func(x, y, _ []float32, step int64) {
		for i := range x {
			x[i] -= y[int64(i)*step]
		}
	})
}

// Spread repeats numbers as a spread says, to a shape.
func (x *Tensor) Spread(s ScaleMap, shape []int64) *Tensor {
	nothing := Constant(0, x.DType)
	nothing.Shape = shape
	return combined(nothing, x, nil, s, x.DType, func(x, y, _ []float32, step int64) {
		for i := range x {
			x[i] = y[int64(i)*step]
		}
	})
}

// LookedUp is the elements of a table that positions name; those below 0 count
// from the end.
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

// ReadAll reads elements in steps that keep buffers small.
func (x *Tensor) ReadAll(a *Arena, dst []float32, off int64) error {
	for len(dst) > 0 {
		n := min(len(dst), MaxRead)
		if err := x.Read(a, dst[:n], off); err != nil {
			return err
		}
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
