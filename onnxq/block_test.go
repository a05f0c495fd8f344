package onnxq_test

import (
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// A default block size divides the weight where a usual one does. One that was asked for stays.
func TestDefaultBlock(t *testing.T) {
	for _, c := range []struct{ k, block, bits, want int }{
		{256, 0, 4, 128}, {192, 0, 4, 64}, {96, 0, 4, 32}, {80, 0, 4, 16}, {100, 0, 4, 128}, {192, 128, 4, 128},
		{96, 0, 8, 32}, {80, 0, 8, 16}, {100, 0, 8, 32},
	} {
		for _, target := range []spec.Target{spec.Portable, spec.ORT} {
			want := c.want
			if target == spec.ORT && c.block == 0 {
				want = map[int]int{4: 128, 8: 32}[c.bits]
			}
			m, err := onnxq.Open(modeltest.Write(t, testmodels.MLP(1, c.k, c.k, c.k)))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			p, err := m.Plan(onnxq.Options{Bits: c.bits, Block: c.block, Target: target})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Tensors[0].Block; got != want {
				t.Errorf("%+v, target %s: block %d, want %d", c, target, got, want)
			}
		}
	}
}
