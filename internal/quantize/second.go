package quantize

import (
	"context"
	"errors"
	"slices"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/int4"
	"onnxquant/internal/blocks"
	"onnxquant/internal/packing"
	"onnxquant/internal/secondorder"
	"onnxquant/internal/work"
)

// shared is the state that the tiles of a weight share.
type shared struct {
	mu    sync.Mutex
	tiles int      // not yet done
	known bool     // algorithm best: h is computed
	h     *hessian // nil before the first tile, after the last, or if algorithm mse is as good
	steps int      // algorithm hqq; 0: not known
}

// hessian is a Hessian, K rows of K, and its factor.
type hessian struct {
	matrix []float32
	factor *secondorder.Factor
}

// hessian returns the Hessian of a weight, or nil if algorithm mse is as good. The first caller
// computes it, other callers wait.
func (s *shared) hessian(ctx context.Context, w *Weight) (*hessian, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return s.h, nil
	}
	matrix, err := w.hessian(ctx)
	if err != nil {
		return nil, err
	}
	if matrix != nil {
		factor, err := secondorder.NewFactor(ctx, 1, slices.Clone(matrix), int(w.K))
		switch {
		case err == nil:
			s.h = &hessian{matrix, factor}
		case !errors.Is(err, secondorder.ErrHessian): // ErrHessian: the squares of the weights underflow
			return nil, err
		}
	}
	s.known = true
	return s.h, nil
}

// release counts a finished tile, and drops the Hessian after the last one.
func (s *shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tiles--; s.tiles == 0 {
		s.h, s.known = nil, false
	}
}

// damping is the least addition to the diagonal of a Hessian whose diagonal has the mean 1.
const damping = 0.9

// mostChance is the share of noise in W·Wᵀ above which algorithm best falls back to mse.
const mostChance = 0.8

// hessian estimates the Hessian from the weight alone, without calibration data. Training adds
// multiples of inputs to the columns of a weight, so W·Wᵀ resembles the second moment of the
// layer's inputs. The result is W·Wᵀ over the mean of its diagonal, plus damping. The noise in W·Wᵀ
// adds a multiple of the identity. The result is nil if W·Wᵀ is mostly noise.
func (w *Weight) hessian(ctx context.Context) ([]float32, error) {
	var b Buffers
	const columns = 64 // at a time, not those of a tile: sums must not depend on tiles
	k := int(w.K)
	h := make([]float32, k*k)
	transposed := make([]float32, k*columns)
	total := w.Outer * w.Inner
	var fourth float64 // sum of the fourth powers of the lengths of columns
	for at := int64(0); at < total; {
		if err := work.Stopped(ctx); err != nil {
			return nil, err
		}
		o, c := at/w.Inner, at%w.Inner
		n := min(columns, w.Inner-c)
		t := Tile{Weight: w}
		part := chunk{off: o*w.K*w.Inner + c, rows: w.K, n: n}
		if w.Inner == 1 {
			n = min(columns, total-at)
			part = chunk{off: at * w.K, rows: 1, n: n * w.K}
		}
		if err := b.load(ctx, t, part); err != nil {
			return nil, err
		}
		rows := b.x
		if w.Inner == 1 {
			rows = transposed[:len(b.x)]
			packing.Transpose(rows, b.x, int(n), k)
		}
		addProducts(h, rows, k, int(n))
		for j := range n {
			var length float64
			for i := range w.K {
				v := float64(rows[i*n+j])
				length += float64(v * v)
			}
			fourth += float64(length * length)
		}
		at += n
	}
	var trace float64
	for i := range k {
		trace += float64(h[i*k+i])
	}
	chance := chanceOf(h, k, trace, fourth, float64(total))
	if !(chance <= mostChance) {
		return nil, nil
	}
	scale := float32(float64(k) / trace)
	for i := range k {
		for j := range i + 1 {
			v := float32(h[i*k+j] * scale)
			h[i*k+j], h[j*k+i] = v, v
		}
		h[i*k+i] += float32(damping + chance/(1-chance))
	}
	return h, nil
}

// chanceOf returns the share of noise in W·Wᵀ: the share that Ledoit and Wolf would shrink to a
// multiple of the identity ("A well-conditioned estimator for large-dimensional covariance
// matrices", 2004). The samples are the n columns of W. h is the lower triangle of W·Wᵀ. The result
// is 1 or more for random columns, and NaN for a single column.
func chanceOf(h []float32, k int, trace, fourth, n float64) float64 {
	var squares float64
	for i := range k {
		for j := range i + 1 {
			v := float64(h[i*k+j])
			if squares += float64(v * v); j < i {
				squares += float64(v * v)
			}
		}
	}
	return (float64(n*fourth) - squares) / ((n - 1) * (squares - trace*trace/float64(k)))
}

// addProducts adds x·xᵀ to the lower triangle of h. x has k rows of n elements.
func addProducts(h, x []float32, k, n int) {
	for i := range k {
		a := x[i*n : i*n+n]
		for j := range i + 1 {
			c := x[j*n:][:len(a)]
			var s [4]float32
			m := 0
			for ; m+4 <= len(a); m += 4 {
				s[0] += float32(a[m] * c[m])
				s[1] += float32(a[m+1] * c[m+1])
				s[2] += float32(a[m+2] * c[m+2])
				s[3] += float32(a[m+3] * c[m+3])
			}
			for ; m < len(a); m++ {
				s[0] += float32(a[m] * c[m])
			}
			h[i*k+j] += (s[0] + s[1]) + (s[2] + s[3])
		}
	}
}

// wholeColumns reports whether a tile has all blocks of its columns.
func (w *Weight) wholeColumns() bool { return w.encodedColumns() || w.method().whole }

// encodedColumns reports whether columns are encoded as a whole.
func (w *Weight) encodedColumns() bool {
	return w.Encoding != nil && (w.Importance != nil || w.Found != nil)
}

// searchRounds is the number of rounds of a search for codes. More rounds gain nothing for the
// inputs of a layer, because the Hessian is only an estimate.
const searchRounds = 2

// panelWidth is the number of columns that are fitted side by side.
const panelWidth = 32

// descend is fit for algorithm best without calibration data. The Hessian follows from the weight
// itself.
func (t Tile) descend(ctx context.Context, b *Buffers, c Codec, part chunk, fitter blocks.Fitter, state *shared) error {
	h, err := state.hessian(ctx, t.Weight)
	if err != nil {
		return err
	}
	defer state.release()
	if h == nil {
		return t.fitAll(ctx, b, part, fitter)
	}
	var columns secondorder.Columns
	var search secondorder.Search
	format := t.SecondOrder(c)
	total := len(b.x) / int(t.K)
	for first := 0; first < total; first += panelWidth {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		p := panel{first, min(panelWidth, total-first), total, t.Inner == 1}
		columns.Resize(int(t.K), p.n, format)
		copyColumns(p, columns.Weights, b.x)
		columns.FitBlocks(format, fitter)
		search.Find(h.factor, &columns, h.matrix, format, searchRounds)
		setColumns(p, b.codes, columns.Codes)
		setColumns(p, b.scale, columns.Scales)
		setColumns(p, b.zero, columns.Zeros)
	}
	return nil
}

// SecondOrder describes codes for package secondorder.
func (w *Weight) SecondOrder(codec Codec) secondorder.Format {
	if w.Encoding != nil {
		return partsOf(w.Encoding.Form)
	}
	f := secondorder.Format{Block: int(w.Block), Positive: w.PositiveScales}
	switch c := codec.(type) {
	case int4.Codec:
		f.Codec = c
	case searcher:
		s := c.LeastError()
		f.Codec.Type, f.Positive = s.Type, true
		f.Levels = secondorder.NewLevels(s.Values, s.Codes, s.Outer, s.Store)
	}
	return f
}

// partsOf describes the parts of blocks. A part has codes times a scale, which represent weights
// plus the min of the part. Scales that are codes themselves are fixed.
func partsOf(form *ggml.Form) secondorder.Format {
	f := secondorder.Format{Block: form.Part, Fixed: form.Nested}
	f.Codec = int4.Codec{Bits: form.Bits, Signed: form.Signed, ZeroPoint: true, Scale: dtype.Float16}
	if form.Values != nil {
		var values [256]float32
		f.Levels = secondorder.NewLevels(&values, copy(values[:], form.Values), 1, dtype.RoundFloat16)
	}
	return f
}

// panel is a range of columns of a tile.
type panel struct {
	first, n, total int
	asRows          bool // the tile stores columns as rows
}

// copyColumns copies columns of a tile into columns, side by side.
func copyColumns[T any](p panel, columns, tile []T) {
	k := len(columns) / p.n
	if p.asRows {
		packing.Transpose(columns, tile[p.first*k:], p.n, k)
		return
	}
	for i := range k {
		copy(columns[i*p.n:(i+1)*p.n], tile[i*p.total+p.first:])
	}
}

// setColumns is the inverse of copyColumns.
func setColumns[T any](p panel, tile, columns []T) {
	k := len(columns) / p.n
	if p.asRows {
		packing.Transpose(tile[p.first*k:], columns, k, p.n)
		return
	}
	for i := range k {
		copy(tile[i*p.total+p.first:], columns[i*p.n:(i+1)*p.n])
	}
}
