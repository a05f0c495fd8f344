package layerfit

import (
	"math/rand/v2"
	"testing"

	"onnxquant/int4"
	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
	"onnxquant/spec"
)

func layer(k, n int64, input string) Layer {
	return Layer{&quantize.Weight{Outer: 1, K: k, Inner: n, Block: 32, Codec: int4.Codec{Bits: 4, Signed: true}, Algorithm: spec.Best}, []Product{{Operation: operands.Matrix{}, Input: input, Output: "y"}}, false}
}

func algorithmOf(best bool) spec.Algorithm {
	if best {
		return spec.Best
	}
	return spec.GPTQ
}

// Sums over inputs take no more memory than is reckoned with, however many rows there are.
func TestMemoryOfSums(t *testing.T) {
	const k, n, other = 24, 40, 56
	for _, best := range []bool{false, true} {
		c := &calibration{Options: Options{Algorithm: algorithmOf(best)}, layers: []Layer{layer(k, n, "x"), layer(k, other, "x")}}
		columns := []int{n, other}
		var targets []*target
		for _, n := range columns {
			targets = append(targets, newTarget(k, n, best))
		}
		m := newMoments(k, 1, targets)
		rng := rand.New(rand.NewPCG(1, 2))
		row := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = rng.Float32()
			}
			return x
		}
		for i := range 12 * m.most {
			y := make([][]float32, len(columns))
			for j, n := range columns {
				if best {
					y[j] = row(n)
				}
			}
			if err := m.add(t.Context(), 1, i%10 == 9, row(k), y); err != nil {
				t.Fatal(err)
			}
		}
		held := cap(m.h) + cap(m.x) + cap(m.held)
		for _, t := range m.targets {
			held += cap(t.g) + cap(t.y) + cap(t.held)
		}
		if bytes := c.bytes(&inputs{parts: 1, layers: []int{0, 1}}); 4*int64(held) > bytes {
			t.Errorf("best %v: %d bytes, reckoned with %d", best, 4*held, bytes)
		}
	}
}

// Groups share the memory: with less of it there are more, and each takes no more than half, as
// do the buffers that find codes.
func TestGroupsFitMemory(t *testing.T) {
	var layers []Layer
	for i := range 30 {
		layers = append(layers, layer(256, 512, string(rune('a'+i))))
	}
	var last Cost
	for _, memory := range []int64{64 << 20, 16 << 20, 8 << 20} {
		for _, best := range []bool{false, true} {
			c := Estimate(layers, Options{Algorithm: algorithmOf(best), Memory: memory, Threads: 2})
			if c.Memory > memory || c.Groups == 0 || c.Time <= 0 {
				t.Errorf("%d MiB, best %v: %+v", memory>>20, best, c)
			}
			if best && last.Groups != 0 && c.Groups < last.Groups || best && c.Runs < 2 {
				t.Errorf("%d MiB: %+v, with more memory %+v", memory>>20, c, last)
			}
			if best {
				last = c
			}
		}
	}
	if c := Estimate(nil, Options{Memory: 1 << 20}); c != (Cost{}) {
		t.Errorf("no layers: %+v", c)
	}
}
