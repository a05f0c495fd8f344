package quantize

import (
	"context"

	"onnxquant/int4"
	"onnxquant/internal/blocks"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// method is how an algorithm fits the integer codes of whole blocks.
type method struct {
	fitter func(*Weight, int4.Codec) blocks.Fitter
	// fit sets the codes of a chunk of a tile. nil means Tile.fitAll.
	fit   func(t Tile, ctx context.Context, b *Buffers, c Codec, part chunk, fitter blocks.Fitter, state *shared) error
	whole bool // fit needs whole columns
}

// methodOf returns the method of an algorithm. Round to nearest has the zero method.
func methodOf(a spec.Algorithm) method {
	switch a {
	case spec.RTNofORT:
		return method{fitter: func(_ *Weight, c int4.Codec) blocks.Fitter { return c.SignedExtreme() }}
	case spec.KQuant:
		return method{fitter: func(w *Weight, c int4.Codec) blocks.Fitter { return c.KQuant(int(w.Block)) }}
	case spec.HQQ:
		halfQuadratic := func(w *Weight, c int4.Codec) blocks.Fitter { return c.HalfQuadratic(int(w.Block), 0, true) }
		return method{fitter: halfQuadratic, fit: Tile.fitHalfQuadratic}
	case spec.MSE, spec.AWQ, spec.GPTQ:
		return method{fitter: leastAngle}
	case spec.Best:
		return method{fitter: leastAngle, fit: Tile.descend, whole: true}
	}
	return method{}
}

func leastAngle(w *Weight, c int4.Codec) blocks.Fitter { return c.LeastAngle(w.PositiveScales) }

// searcher is a codec of floats, or of a table of values, that can search the scale of a block.
type searcher interface{ LeastError() *blocks.Search }

// method returns how codes are fitted. It is the zero method if codes are rounded to nearest or
// already found.
func (w *Weight) method() method {
	if w.Found != nil || w.Encoding != nil {
		return method{}
	}
	if _, integers := w.Codec.(int4.Codec); !integers {
		if _, ok := w.Codec.(searcher); !ok || !w.Algorithm.Traits().OtherFormats {
			return method{}
		}
	}
	return methodOf(w.Algorithm)
}

// fitter returns the Fitter that sets codes and scales block by block, or nil for rounding to
// nearest.
func (w *Weight) fitter(codec Codec) blocks.Fitter {
	m := w.method()
	if m.fitter == nil {
		return nil
	}
	if s, ok := codec.(searcher); ok {
		return s.LeastError()
	}
	return m.fitter(w, codec.(int4.Codec))
}

// MSE returns the Fitter of algorithm mse.
func (w *Weight) MSE() blocks.Fitter {
	if c, ok := w.Codec.(searcher); ok {
		return c.LeastError()
	}
	return leastAngle(w, w.Codec.(int4.Codec))
}

// fitted reports whether a Fitter sets the codes.
func (w *Weight) fitted() bool { return w.method().fitter != nil }

// fitsColumns reports whether blocks in columns are fitted in place, without transposing.
func (w *Weight) fitsColumns() bool {
	_, columns := w.fitter(w.Codec).(blocks.ColumnFitter)
	return columns && w.Inner > 1 && !w.method().whole
}

// whole reports whether a tile must be in memory as a whole.
func (w *Weight) whole() bool { return w.Encoding != nil || w.fitted() }

// fitAll sets codes, scales and zero points of a tile with a fitter. The elements are in b.x. It
// passes as many blocks at once as the fitter takes.
func (t Tile) fitAll(ctx context.Context, b *Buffers, part chunk, fitter blocks.Fitter) error {
	if columns, ok := fitter.(blocks.ColumnFitter); ok && t.Inner > 1 {
		return t.fitColumns(ctx, b, columns)
	}
	if rows, ok := fitter.(blocks.BlockFitter); ok && t.Inner == 1 {
		_, k := t.inRows(part)
		rows.FitBlocks(b.codes, b.x, b.scale, b.zero, int(k), int(t.Block))
		return nil
	}
	return t.fit(ctx, b, part, func(i int, q []byte, x []float32) { b.scale[i], b.zero[i] = fitter.Fit(q, x) })
}

// fitColumns is fitAll for blocks in columns.
func (t Tile) fitColumns(ctx context.Context, b *Buffers, fitter blocks.ColumnFitter) error {
	for s := range b.slabs(t) {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		fitter.FitColumns(s.codes, s.x, s.scale, s.zero)
	}
	return nil
}

// fit sets the codes of a tile, whose elements are in b.x. The function one sets the codes, the
// scale and the zero point of one block.
func (t Tile) fit(ctx context.Context, b *Buffers, part chunk, one func(block int, q []byte, x []float32)) error {
	fitted := b.codes // in block order
	if t.Inner > 1 {
		fitted = buffer.Grow(&b.transposed, int64(len(b.x)))
	}
	at := 0
	for i, x := range t.pieces(b, part) {
		if i%64 == 0 { // asking costs as much as a small block
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
