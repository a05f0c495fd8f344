package quantize

import (
	"context"

	"onnxquant/int4"
	"onnxquant/internal/blocks"
	"onnxquant/internal/work"
)

// halfQuadraticSteps returns how many steps the blocks of a weight take. The first caller computes
// the number, other callers wait.
func (s *shared) halfQuadraticSteps(ctx context.Context, w *Weight, c int4.Codec) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps != 0 {
		return s.steps, nil
	}
	var b Buffers
	var sums [int4.MostHalfQuadraticSteps]float64
	h := c.HalfQuadratic(int(w.Block), 0, !w.FloatZeros)
	for t := range w.tiles(nearTile) { // not the run's limit: sums must not depend on memory
		part := t.chunks(0)[0]
		b.makeRoom(t)
		if err := b.load(ctx, t, part); err != nil {
			return 0, err
		}
		for _, x := range t.pieces(&b, part) {
			if err := work.Stopped(ctx); err != nil {
				return 0, err
			}
			h.AddErrors(&sums, x)
		}
	}
	s.steps = int4.HalfQuadraticSteps(&sums, w.Outer*w.Inner*w.Blocks()*w.Block)
	return s.steps, nil
}

// fitHalfQuadratic is fit for algorithm hqq.
func (t Tile) fitHalfQuadratic(ctx context.Context, b *Buffers, c Codec, part chunk, _ blocks.Fitter, state *shared) error {
	integers := c.(int4.Codec)
	steps, err := state.halfQuadraticSteps(ctx, t.Weight, integers)
	if err != nil {
		return err
	}
	h := integers.HalfQuadratic(int(t.Block), steps, !t.FloatZeros)
	return t.fit(ctx, b, part, func(i int, q []byte, x []float32) {
		if t.FloatZeros {
			b.scale[i], b.floatZero[i] = h.FitFloat(q, x)
		} else {
			b.scale[i], b.zero[i] = h.Fit(q, x)
		}
	})
}

// decodeFloatZeros is decode for float zero points.
func (t Tile) decodeFloatZeros(b *Buffers, c int4.Codec, part chunk) {
	least, _ := c.Limits()
	value := func(q byte, block int64) float32 {
		n := int32(q)
		if c.Signed {
			n = int32(int8(q))
		}
		return float32((float32(n-least) - b.floatZero[block]) * b.scale[block])
	}
	if t.Inner == 1 {
		k := min(part.n, t.K)
		blocks := (k-1)/t.Block + 1
		for i, q := range b.codes {
			row, at := int64(i)/k, int64(i)%k
			b.decoded[i] = value(q, row*blocks+at/t.Block)
		}
	} else {
		first := int64(0)
		for s := range b.slabs(t) {
			for i, q := range s.codes {
				s.decoded[i] = value(q, first+int64(i%len(s.scale)))
			}
			first += int64(len(s.scale))
		}
	}
	c.Type.RoundAll(b.decoded)
}
