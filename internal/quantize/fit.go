package quantize

import (
	"context"

	"onnxquant/int4"
	"onnxquant/internal/blocks"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
	"onnxquant/onnxq/spec"
)

// fitters make what finds the codes of whole blocks of integers, by algorithm.
var fitters = map[spec.Algorithm]func(*Weight, int4.Codec) int4.Fitter{
	spec.RTNofORT:   func(_ *Weight, c int4.Codec) int4.Fitter { return c.SignedExtreme() },
	spec.KQuant:     func(w *Weight, c int4.Codec) int4.Fitter { return c.KQuant(int(w.Block)) },
	spec.HQQ:        func(w *Weight, c int4.Codec) int4.Fitter { return c.HalfQuadratic(int(w.Block), 0, true) }, // see fitHalfQuadratic
	spec.LeastAngle: leastAngle,
	spec.Best:       leastAngle,
	spec.GPTQ:       leastAngle,
	spec.AWQ:        leastAngle,
}

func leastAngle(w *Weight, c int4.Codec) int4.Fitter { return c.LeastAngle(w.PositiveScales) }

// searcher is a codec of floats, or of a table, that can search for the scale of a block.
type searcher interface{ LeastError() *blocks.Search }

// fitter returns what finds codes and scales of a codec block by block, or nil for rounding to
// nearest.
func (w *Weight) fitter(codec Codec) int4.Fitter {
	switch {
	case !w.fitted():
		return nil
	case w.searched():
		return codec.(searcher).LeastError()
	}
	return fitters[w.Algorithm](w, codec.(int4.Codec))
}

// LeastAngle returns what finds the codes of algorithm mse.
func (w *Weight) LeastAngle() int4.Fitter {
	if c, ok := w.Codec.(searcher); ok {
		return c.LeastError()
	}
	return leastAngle(w, w.Codec.(int4.Codec))
}

// fitted reports whether a fitter finds the codes.
func (w *Weight) fitted() bool {
	_, integers := w.Codec.(int4.Codec)
	return w.Found == nil && (integers && fitters[w.Algorithm] != nil || w.searched())
}

func (w *Weight) searched() bool {
	_, ok := w.Codec.(searcher)
	return ok && (w.Algorithm == spec.LeastAngle || w.Algorithm == spec.Best || w.Algorithm == spec.GPTQ)
}

// fitsColumns reports whether blocks that lie in columns are fitted as they lie.
func (w *Weight) fitsColumns() bool {
	_, columns := w.fitter(w.Codec).(int4.ColumnFitter)
	return columns && w.Inner > 1 && !w.estimated()
}

// whole reports whether a tile must be in memory as a whole.
func (w *Weight) whole() bool { return w.Encoding != nil || w.fitted() }

// fitAll sets the codes, scales and zero points of a tile, whose elements are in b.x, by a fitter, as
// many blocks at once as that can.
func (t Tile) fitAll(ctx context.Context, b *Buffers, part chunk, fitter int4.Fitter) error {
	if columns, ok := fitter.(int4.ColumnFitter); ok && t.Inner > 1 {
		return t.fitColumns(ctx, b, columns)
	}
	if rows, ok := fitter.(int4.BlockFitter); ok && t.Inner == 1 {
		_, k := t.inRows(part)
		rows.FitBlocks(b.codes, b.x, b.scale, b.zero, int(k), int(t.Block))
		return nil
	}
	return t.fit(ctx, b, part, func(i int, q []byte, x []float32) { b.scale[i], b.zero[i] = fitter.Fit(q, x) })
}

// fitColumns is fitAll for blocks that lie in columns.
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
		fitted = buffer.Grow(&b.transposed, int64(len(b.x)))
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
