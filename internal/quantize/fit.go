package quantize

import (
	"context"

	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
	"onnxquant/onnxq/spec"
)

// fitter returns what finds codes and scales block by block, or nil for rounding to nearest.
func (w *Weight) fitter() int4.Fitter {
	c, ok := w.Codec.(int4.Codec)
	if !ok || w.Found != nil {
		return nil
	}
	switch w.Algorithm {
	case spec.RTNofORT:
		return c.SignedExtreme()
	case spec.KQuant:
		return c.KQuant(int(w.Block))
	case spec.HQQ:
		return c.HalfQuadratic(int(w.Block), 0, true) // see fitHalfQuadratic
	case spec.LeastAngle, spec.Best, spec.GPTQ:
		return c.LeastAngle(w.PositiveScales)
	}
	return nil
}

// whole reports whether a tile must be in memory as a whole.
func (w *Weight) whole() bool { return w.Encoding != nil || w.fitter() != nil }

// fitColumns sets the codes, scales and zero points of a tile, whose elements are in b.x.
func (t Tile) fitColumns(ctx context.Context, b *Buffers, fitter int4.ColumnFitter) error {
	for s := range b.slabs(t) {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		fitter.FitColumns(s.codes, s.x, s.scale, s.zero)
	}
	return nil
}

// fit sets the codes of a tile, whose elements are in b.x. one sets those of a block, its scale
// and its zero point.
func (t Tile) fit(ctx context.Context, b *Buffers, part chunk, one func(block int, q []byte, x []float32)) error {
	fitted := b.codes // in block order
	if t.Inner > 1 {
		fitted = buffer.Grow(&b.turned, int64(len(b.x)))
	}
	at := 0
	for i, x := range t.pieces(b, part) {
		if i%64 == 0 { // to ask takes as long as a small block
			if err := work.Stopped(ctx); err != nil {
				return err
			}
		}
		one(i, fitted[at:at+len(x)], x)
		at += len(x)
	}
	if t.Inner > 1 {
		at = 0
		for s := range b.slabs(t) {
			n, columns := len(s.x), len(s.hi)
			packing.Transpose(s.codes, fitted[at:at+n], columns, n/columns)
			at += n
		}
	}
	return nil
}
