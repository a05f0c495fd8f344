package lazy_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
)

// counted is a stored tensor of uint8 or uint16 whose bytes are all different, or nearly.
func counted(r *rand.Rand, typ dtype.DType, shape ...int64) *lazy.Tensor {
	raw := make([]byte, shapes.Count(shape)*typ.Bits()/8)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return lazy.Stored(typ, shape, bytes.NewReader(raw))
}

// element returns the bytes of an element.
func element(t *testing.T, x *lazy.Tensor, index []int64) []byte {
	t.Helper()
	at := int64(0)
	for i, n := range x.Shape {
		at = at*n + index[i]
	}
	size := x.DType.Bits() / 8
	b := make([]byte, size)
	if err := buffer.ReadFull(x.Stored, b, at*size); err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares each element of got with the one that from finds, reading got in pieces.
func same(t *testing.T, r *rand.Rand, got *lazy.Tensor, from func(index []int64) []byte) {
	t.Helper()
	size := got.DType.Bits() / 8
	raw := make([]byte, shapes.Count(got.Shape)*size)
	for off := 0; off < len(raw); {
		n := min(1+r.IntN(2*len(raw)), len(raw)-off)
		if err := buffer.ReadFull(got.Stored, raw[off:off+n], int64(off)); err != nil {
			t.Fatal(err)
		}
		off += n
	}
	index := make([]int64, len(got.Shape))
	for i := range int64(len(raw)) / size {
		rest := i
		for k, n := range slices.Backward(got.Shape) {
			index[k], rest = rest%n, rest/n
		}
		if want := from(index); !bytes.Equal(raw[i*size:(i+1)*size], want) {
			t.Fatalf("element %v of %v is %v, want %v", index, got.Shape, raw[i*size:(i+1)*size], want)
		}
	}
}

// Slices, transpositions and joins, also of each other, have the elements that their definition says.
func TestRearranged(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		typ := []dtype.DType{dtype.Uint8, dtype.Float16, dtype.Float32}[r.IntN(3)]
		shape := make([]int64, 1+r.IntN(4))
		for i := range shape {
			shape[i] = 1 + r.Int64N(9)
			if r.IntN(8) == 0 {
				shape[i] = 300
			}
		}
		x := counted(r, typ, shape...)
		axis := r.IntN(len(shape))
		start, step := r.Int64N(shape[axis]), 1+r.Int64N(3)
		count := 1 + r.Int64N((shape[axis]-start-1)/step+1)
		if r.IntN(2) == 0 { // from the end on
			start, step = start+(count-1)*step, -step
		}
		perm := make([]int64, len(shape))
		for i, p := range r.Perm(len(shape)) {
			perm[i] = int64(p)
		}
		turned := func(x *lazy.Tensor) {
			same(t, r, x.Transposed(perm), func(index []int64) []byte {
				at := make([]int64, len(index))
				for i, p := range perm {
					at[p] = index[i]
				}
				return element(t, x, at)
			})
		}
		turned(x)
		s := x.Sliced(axis, start, step, count)
		same(t, r, s, func(index []int64) []byte {
			at := slices.Clone(index)
			at[axis] = start + step*index[axis]
			return element(t, x, at)
		})
		turned(s)
		other := slices.Clone(s.Shape)
		other[axis] = 1 + r.Int64N(5)
		y := counted(r, typ, other...)
		same(t, r, lazy.Joined([]*lazy.Tensor{s, y, s}, axis), func(index []int64) []byte {
			at := slices.Clone(index)
			for _, part := range []*lazy.Tensor{s, y, s} {
				if at[axis] < part.Shape[axis] {
					return element(t, part, at)
				}
				at[axis] -= part.Shape[axis]
			}
			t.Fatal("too many elements")
			return nil
		})
	}
}
