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

// A weight [K, N] has the codes and scales of the transposed one, transposed.
func TestEncodeColumns(t *testing.T) {
	for _, size := range [][3]int{{8, 3, 4}, {16, 5, 16}, {19, 4, 8}, {5, 2, 16}, {6, 1, 1}} {
		k, n, block := size[0], size[1], size[2]
		c := int4.Codec{Bits: 4, Signed: k%2 == 0, ZeroPoint: k%2 != 0}
		w, rows := make([]float32, k*n), make([]float32, k*n)
		for i := range k {
			for j := range n {
				w[i*n+j] = float32(math.Sin(float64(3*i + 7*j)))
				rows[j*k+i] = w[i*n+j]
			}
		}
		got, err := int4.EncodeColumns(w, k, n, block, c)
		if err != nil {
			t.Fatal(err)
		}
		want, err := int4.Encode(rows, k, block, c)
		if err != nil {
			t.Fatal(err)
		}
		x, err := got.Decode()
		if err != nil {
			t.Fatal(err)
		}
		y, err := want.Decode()
		if err != nil {
			t.Fatal(err)
		}
		per := (k-1)/block + 1
		for i := range k {
			for j := range n {
				if got.Scales[i/block*n+j] != want.Scales[j*per+i/block] || c.ZeroPoint && got.Zeros[i/block*n+j] != want.Zeros[j*per+i/block] || x[i*n+j] != y[j*k+i] {
					t.Fatalf("%v: element [%d, %d] is %v, in rows %v", size, i, j, x[i*n+j], y[j*k+i])
				}
			}
		}
	}
	if _, err := int4.EncodeColumns(make([]float32, 12), 4, 4, 2, int4.Codec{Bits: 4}); err == nil {
		t.Error("12 elements are no weight of 4 rows of 4")
	}
}
