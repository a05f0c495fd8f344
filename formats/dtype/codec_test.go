package dtype

import (
	"math"
	"slices"
	"testing"

	"onnxquant/internal/kernels"
)

// Elements may be decoded to the memory that they are in.
func TestDecodeInPlace(t *testing.T) {
	bits := func(x []float32) (all []uint32) {
		for _, v := range x {
			all = append(all, math.Float32bits(v))
		}
		return all
	}
	for _, typ := range []DType{Float32, Float16, BFloat16} {
		for n := range 200 {
			raw := make([]byte, typ.floatBytes(n))
			for i := range raw {
				raw[i] = byte(i * 37 % 120) // no NaN
			}
			want := make([]float32, n)
			typ.Decode(want, raw)
			got := make([]float32, n)
			end := kernels.Bytes(got)[4*n-len(raw):]
			copy(end, raw)
			typ.Decode(got, end)
			if !slices.Equal(bits(got), bits(want)) {
				t.Fatalf("%v: %d elements: other values", typ, n)
			}
		}
	}
}
