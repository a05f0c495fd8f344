package quantize

import (
	"context"
	"encoding/binary"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/work"
	"onnxquant/nvfp4"
)

// NVFP4, int8 and uint8 scales have a scale themselves, one per tensor, which depends on all elements.

// ScaledScales reports whether the scales have a scale, which FindTensorScales finds.
func (w *Weight) ScaledScales() bool { return w.TwoLevel || w.steppedScales() }

// seeksTensorScale reports whether the scale of the scales depends on the elements.
func (w *Weight) seeksTensorScale() bool { return w.ScaledScales() && w.TensorScale == 0 }

// steppedScales reports whether scales are stored as multiples of a step.
func (w *Weight) steppedScales() bool { return w.ScaleType == dtype.Int8 || w.ScaleType == dtype.Uint8 }

// TensorScaleBytes is the number of bytes that FindTensorScales reads.
func (r *Run) TensorScaleBytes() (n int64) {
	for _, t := range r.Tiles {
		if t.seeksTensorScale() {
			n += t.SourceBytes()
		}
	}
	return n
}

// FindTensorScales computes and writes the scales of scales. It must run before Quantize. It reads
// each weight with 8-bit scales once.
func (r *Run) FindTensorScales(ctx context.Context, workers int, progress func(bytes int64)) error {
	var tiles []int
	for i, t := range r.Tiles {
		if t.seeksTensorScale() {
			tiles = append(tiles, i)
		}
	}
	extents := make([]extent, len(tiles))
	err := work.Each(ctx, workers, len(tiles), func(ctx context.Context, b *Buffers, i int) error {
		t := r.Tiles[tiles[i]]
		defer progress(t.SourceBytes())
		return extents[i].add(ctx, b, t, t.chunks(r.limit))
	})
	if err != nil {
		return err
	}
	whole := make([]extent, len(r.Weights))
	for i, tile := range tiles {
		whole[r.of[tile]].merge(&extents[i])
	}
	for i, w := range r.Weights {
		switch e := &whole[i]; {
		case w.TensorScale != 0:
			twoLevel := w.Codec.(nvfp4.Codec)
			twoLevel.TensorScale = w.TensorScale
			r.codecs[i], r.tensors[i] = twoLevel, w.TensorScale
		case w.TwoLevel:
			r.codecs[i], r.tensors[i], err = rescaled(w.Codec, e.peak)
			if err != nil {
				r.spoil(i)
			}
		case w.steppedScales():
			r.codecs[i], r.tensors[i] = withSteps(w.Codec, e.peak)
			if e.broken {
				r.spoil(i)
			}
			r.float16[i] = e.tooCoarse(r.tensors[i])
		}
		if !w.ScaledScales() || r.Broken(i) || r.sinks == nil {
			continue
		}
		if _, err := r.sinks[i].parts.TensorScale.WriteAt(r.tensorScale(i), 0); err != nil {
			return err
		}
	}
	return nil
}

// extent has the statistics that determine the scale of scales.
type extent struct {
	peak   float32    // largest magnitude of an element, or largest scale; NaN stays NaN
	broken bool       // some values cannot be quantized
	blocks [256]int64 // number of nonzero blocks, by the float32 exponent of their scale
}

func (e *extent) add(ctx context.Context, b *Buffers, t Tile, chunks []chunk) error {
	if t.TwoLevel {
		peak := []float32{0}
		for _, c := range chunks {
			if err := b.load(ctx, t, c); err != nil {
				return err
			}
			t.Codec.ObserveBlocks(nil, peak, b.x, len(b.x), len(b.x))
		}
		e.peak = peak[0]
		return nil
	}
	finite, err := t.findScales(ctx, b, t.Codec, chunks)
	if err != nil || !finite {
		e.broken = !finite
		return err
	}
	for i, s := range b.scale {
		if b.hi[i] != 0 || b.lo[i] != 0 {
			e.peak = max(e.peak, s)
			e.blocks[math.Float32bits(s)>>23&0xff]++
		}
	}
	return nil
}

func (e *extent) merge(other *extent) {
	e.peak = max(e.peak, other.peak)
	e.broken = e.broken || other.broken
	for i, n := range other.blocks {
		e.blocks[i] += n
	}
}

// mostRounding is the limit for the error of scales that are rounded to multiples of a step:
// relative, root mean square over the blocks. It is small against the error of 4-bit codes.
const mostRounding = 0.02

// tooCoarse reports whether a step is too large for most blocks of a weight. That happens if a few
// elements are far larger than the others.
func (e *extent) tooCoarse(step float32) bool {
	var blocks, squares float64
	for exponent, n := range e.blocks {
		scale := math.Ldexp(1.5, exponent-127)
		r := float64(step) / scale
		blocks, squares = blocks+float64(n), squares+float64(n)*r*r/12 // rounding to a step has the error step/√12
	}
	return squares > blocks*mostRounding*mostRounding
}

// withSteps returns a codec whose scales are multiples of a step, and the step. largest is the
// largest scale.
func withSteps(c Codec, largest float32) (Codec, float32) {
	integers := c.(int4.Codec).WithStep(largest)
	return integers, integers.Step
}

// rescaled returns the codec of a two-level format for a tensor with the given amax, and the
// scale of the tensor.
func rescaled(c Codec, amax float32) (Codec, float32, error) {
	twoLevel := c.(nvfp4.Codec)
	scale, err := nvfp4.TensorScale(amax)
	twoLevel.TensorScale = scale
	return twoLevel, scale, err
}

// Codec returns the codec of a weight. After FindTensorScales it includes the scale of the scales.
func (r *Run) Codec(weight int) Codec { return r.codecs[weight] }

// NeedsFloat16Scales reports whether the scales of a weight differ too much for 8 bits.
func (r *Run) NeedsFloat16Scales(weight int) bool { return r.float16[weight] }

// tensorScale is the scale of a weight's scales, encoded as stored.
func (r *Run) tensorScale(weight int) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(r.tensors[weight]))
}

// TensorScaleIs reports whether a file has the same scale of scales that was written.
func (r *Run) TensorScaleIs(weight int, from Contents) (bool, error) {
	var raw [4]byte
	if err := buffer.ReadFull(from.TensorScale, raw[:], 0); err != nil {
		return false, err
	}
	return string(raw[:]) == string(r.tensorScale(weight)), nil
}
