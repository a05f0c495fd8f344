package ggml

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Blocks that are encoded side by side have the bytes that each has alone.
func TestSideBySide(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for e, all := range sideBySide {
		const blocks = 21
		x, w := make([]float32, blocks*e.Elements), make([]float32, blocks*e.Elements)
		for i := range x {
			size := []float32{1, 0, 0x1p-40, 0x1p40}[i/e.Elements%4]
			x[i], w[i] = size*float32(r.NormFloat64()), float32(r.ExpFloat64())*float32(r.IntN(3))
		}
		together, alone := make([]byte, blocks*e.Bytes), make([]byte, blocks*e.Bytes)
		all(together, x, w)
		for b := range blocks {
			e.Encode(alone[b*e.Bytes:][:e.Bytes], x[b*e.Elements:][:e.Elements], w[b*e.Elements:][:e.Elements])
		}
		if !bytes.Equal(together, alone) {
			t.Errorf("%s: blocks side by side have other bytes", e)
		}
	}
}
