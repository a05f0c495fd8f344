package int4_test

import (
	"math"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
)

// Encode makes what the streaming methods make, and Decode inverts it, for all formats and for
// blocks that do not divide the rows.
func TestTensor(t *testing.T) {
	const k, rows = 37, 3
	w := make([]float32, rows*k)
	for i := range w {
		w[i] = float32(math.Sin(float64(i*i))) * float32(i%5)
	}
	for _, bits := range []int{2, 4, 8} {
		for _, signed := range []bool{false, true} {
			for _, zero := range []bool{false, true} {
				for _, block := range []int{1, 16, 37, 100} {
					c := int4.Codec{Bits: bits, Signed: signed, ZeroPoint: zero, Type: dtype.Float32}
					tensor, err := int4.Encode(w, k, block, c)
					if err != nil {
						t.Fatal(err)
					}
					got, err := tensor.Decode()
					if err != nil {
						t.Fatal(err)
					}
					if want := decodedInPieces(c, w, k, block); !slices.Equal(got, want) {
						t.Errorf("%+v, block %d: %v, want %v", c, block, got, want)
					}
				}
			}
		}
	}
}

func decodedInPieces(c int4.Codec, w []float32, k, block int) (x []float32) {
	for row := range slices.Chunk(w, k) {
		n := (k-1)/block + 1
		lo, hi, scale, zero := make([]float32, n), make([]float32, n), make([]float32, n), make([]byte, n)
		c.ObserveBlocks(lo, hi, row, k, block)
		c.Scales(scale, zero, lo, hi)
		q, y := make([]byte, k), make([]float32, k)
		c.EncodeBlocks(q, row, scale, zero, k, block)
		c.DecodeBlocks(y, q, scale, zero, k, block)
		x = append(x, y...)
	}
	return x
}

func TestTensorErrors(t *testing.T) {
	c := int4.Codec{Bits: 4, Signed: true}
	nan := float32(math.NaN())
	for _, e := range []struct {
		w        []float32
		k, block int
		c        int4.Codec
	}{
		{[]float32{1, 2, 3}, 2, 2, c}, {[]float32{1}, 0, 1, c}, {[]float32{1}, 1, 0, c}, {[]float32{nan}, 1, 1, c}, {[]float32{1}, 1, 1, int4.Codec{Bits: 3}},
	} {
		if _, err := int4.Encode(e.w, e.k, e.block, e.c); err == nil {
			t.Errorf("%+v: no error", e)
		}
	}
	good, err := int4.Encode([]float32{1, 2, 3, 4}, 2, 2, c)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(t *int4.Tensor){
		func(t *int4.Tensor) { t.Rows = math.MaxInt }, func(t *int4.Tensor) { t.Rows = -1 }, func(t *int4.Tensor) { t.K = 0 }, func(t *int4.Tensor) { t.Block = 0 },
		func(t *int4.Tensor) { t.Scales = nil }, func(t *int4.Tensor) { t.Packed = t.Packed[1:] }, func(t *int4.Tensor) { t.Zeros = make([]byte, 2) },
		func(t *int4.Tensor) { t.Codec.Bits = 0 }, func(t *int4.Tensor) { t.Codec.ZeroPoint = true },
	} {
		bad := *good
		change(&bad)
		if _, err := bad.Decode(); err == nil {
			t.Errorf("change %d: no error", i)
		}
	}
}
