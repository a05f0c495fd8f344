//go:build !purego

package blocks_test

import (
	"math"
	"testing"

	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/internal/blocks"
	"onnxquant/nvfp4"
)

// A search takes no memory for a block. Plain Go is left out: its loops hold their pieces on the heap.
func TestSearchAllocatesNothing(t *testing.T) {
	x, q := make([]float32, 32), make([]byte, 32)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)))
	}
	for _, s := range []*blocks.Search{
		nvfp4.Codec{TensorScale: 0.003}.LeastError(), mx.Codec{}.LeastError(), fp8.Codec{}.LeastError(), qlora.Codec{}.LeastError(),
	} {
		if n := testing.AllocsPerRun(10, func() { s.Fit(q, x) }); n > 0 {
			t.Errorf("values %v …: %v allocations", s.Values[:4], n)
		}
	}
}
