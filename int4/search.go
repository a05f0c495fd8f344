package int4

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// Search narrows the ranges that the observing methods found, before Scales turns them
// into scales. Call Reset with the ranges of some blocks. As long as Next returns true,
// call Piece with all elements of each block. When it returns false, the ranges have been
// replaced. A Search keeps a few numbers per block, and no elements.
type Search interface {
	// Reset begins a search for ranges lo … hi. A symmetric format ignores lo.
	// The search changes them when Next returns false.
	Reset(lo, hi []float32)
	Next() bool
	// Piece adds a piece of a block. Blocks may come in any order, the pieces of a block in their
	// order. All pieces but the last must have lengths that are multiples of 8; then the result does
	// not depend on the cut.
	Piece(block int, x []float32)
}

// The ranges that LeastError tries, as shares of the base range.
const (
	symmetricTries  = 37 // 1, 47/48, … 12/48
	symmetricStep   = 48
	asymmetricTries = 25 // 1, 31/32, … 8/32
	oneSidedTries   = 16 // 31/32, … 16/32
	asymmetricStep  = 32
	widerTries      = 8 // 129/128 … 136/128 of the best so far, with 8 bits
	widerStep       = 128
)

// leastError searches for the ranges with the least squared error.
type leastError struct {
	codec  Codec
	format kernels.Format
	middle []byte    // zero point of a symmetric format
	lo, hi []float32 // of the blocks, to be replaced at the end

	try    int
	blocks []candidate
	scale  []float32
	zero   []byte

	q            []byte    // codes, unused
	tryLo, tryHi []float32 // ranges for Scales
}

// candidate is the state of the search for a block.
type candidate struct {
	base, best, try span    // base of the tries, best range so far, current try
	least           float64 // error of best
	sums            kernels.ErrorSums
}

// span is a range.
type span struct{ lo, hi float32 }

// LeastError returns a search for the ranges whose codes have the least squared error. It tries the
// whole range times 1, 47/48, … 12/48. With zero points it tries the range times 1, 31/32, … 8/32,
// then each end alone times 31/32, … 16/32. With 8 bits clipping gains almost nothing, but a slightly
// wider step may suit the elements better: so it ends with the best range times 129/128 … 136/128. Of
// equal errors the first wins, so no block gets worse.
//
// Symmetric codes of 2 bits go from -2 to 1, so all their tries are also made with a negative scale.
// If all scales had one sign, the same side of every block would be clipped, which would shift the
// outputs.
func (c Codec) LeastError() Search {
	return &leastError{codec: c, format: c.format(), middle: c.zeros(nil)}
}

// Reset begins a search.
func (s *leastError) Reset(lo, hi []float32) {
	n := len(hi)
	s.lo, s.hi, s.try = lo, hi, 0
	s.blocks = slices.Grow(s.blocks[:0], n)[:n]
	s.scale = slices.Grow(s.scale[:0], n)[:n]
	s.zero = slices.Grow(s.zero[:0], n)[:n]
	s.tryLo = slices.Grow(s.tryLo[:0], n)[:n]
	s.tryHi = slices.Grow(s.tryHi[:0], n)[:n]
	for i, h := range hi {
		whole := span{hi: h}
		if s.codec.ZeroPoint {
			whole.lo = lo[i]
		}
		s.blocks[i] = candidate{base: whole, best: whole, least: math.Inf(1)}
	}
}

// narrower is the number of tries of narrower ranges.
func (s *leastError) narrower() int {
	switch {
	case s.codec.ZeroPoint:
		return asymmetricTries + 2*oneSidedTries
	case s.bothSigns():
		return 2 * symmetricTries
	}
	return symmetricTries
}

// bothSigns reports whether scales of both signs are tried.
func (s *leastError) bothSigns() bool {
	return s.codec.Bits == 2 && !s.codec.ZeroPoint && s.codec.Scale != dtype.Uint8
}

// tries is the number of tries.
func (s *leastError) tries() int {
	if s.codec.Bits == 8 {
		return s.narrower() + widerTries
	}
	return s.narrower()
}

// Next evaluates a try and begins the next one.
func (s *leastError) Next() bool {
	improvable := s.try == 0 // a block has errors that another try may lower
	if s.try > 0 {
		for i := range s.blocks {
			b := &s.blocks[i]
			if e, _, _ := b.sums.Totals(); e < b.least {
				b.least, b.best = e, b.try
			}
			improvable = improvable || b.least > 0
		}
	}
	if s.try < s.tries() && improvable {
		s.begin()
		s.try++
		return true
	}
	for i := range s.blocks {
		s.hi[i] = s.blocks[i].best.hi
		if s.codec.ZeroPoint {
			s.lo[i] = s.blocks[i].best.lo
		}
	}
	return false
}

// begin sets the ranges of a try and their scales.
func (s *leastError) begin() {
	rebase, low, high := s.shares()
	for i := range s.blocks {
		b := &s.blocks[i]
		if rebase {
			b.base = b.best
		}
		b.try = span{max(b.base.lo*low, -math.MaxFloat32), min(b.base.hi*high, math.MaxFloat32)}
		b.sums = kernels.ErrorSums{}
		s.tryLo[i], s.tryHi[i] = b.try.lo, b.try.hi
	}
	s.codec.Scales(s.scale, s.zero, s.tryLo, s.tryHi)
}

// shares returns the shares of the two ends of the base range in a try. rebase means that the best
// range so far becomes the base first, as before each series of tries.
func (s *leastError) shares() (rebase bool, low, high float32) {
	if t := s.try - s.narrower(); t >= 0 {
		f := 1 + float32(t+1)/widerStep
		return t == 0, f, f
	}
	if !s.codec.ZeroPoint {
		f := 1 - float32(s.try%symmetricTries)/symmetricStep
		if s.try >= symmetricTries {
			f = -f
		}
		return false, f, f
	}
	t := s.try - asymmetricTries
	if t < 0 {
		f := 1 - float32(s.try)/asymmetricStep
		return false, f, f
	}
	rebase = t%oneSidedTries == 0
	f := 1 - float32(t%oneSidedTries+1)/asymmetricStep
	if t < oneSidedTries {
		return rebase, 1, f
	}
	return rebase, f, 1
}

// Piece adds the errors of a piece.
func (s *leastError) Piece(block int, x []float32) {
	if len(s.q) < len(x) {
		s.q = make([]byte, len(x))
	}
	zero := s.middle
	if s.codec.ZeroPoint {
		zero = s.zero[block:]
	}
	kernels.QuantizeBlock(s.q, x, s.scale[block:], zero, s.format, &s.blocks[block].sums)
}

// percentiles finds order statistics by bisection.
type percentiles struct {
	codec  Codec
	p      float64
	lo, hi []float32 // of the blocks, to be replaced at the end

	pass   int
	blocks []ranked
}

// ranked is the state of the search for a block.
type ranked struct {
	n     int64    // elements
	index int64    // of the upper value, in sorted order
	upper bisected // the value of that index
	lower bisected // the value at the mirrored index
}

// bisected is the state of the search for an order statistic: it lies in from … to, and count elements
// are not above the middle.
type bisected struct {
	from, to uint32
	count    int64
}

func (b bisected) middle() uint32 { return b.from + (b.to-b.from)/2 }

// Percentile returns a search for the ranges that leave out the elements above the p-th percentile of
// a block, 50 ≤ p ≤ 100, and as many at the other end. In n sorted elements, counted from 0, the
// percentile is at index i = min(⌊p/100·n⌋, n-1), the other end at n-1-i; short blocks keep all
// elements. If both ends would be 0, the range does not change. The range of a symmetric format is the
// larger magnitude of the two.
func (c Codec) Percentile(p float64) Search { return &percentiles{codec: c, p: p} }

// Reset begins a search.
func (s *percentiles) Reset(lo, hi []float32) {
	s.lo, s.hi, s.pass = lo, hi, 0
	s.blocks = slices.Grow(s.blocks[:0], len(hi))[:len(hi)]
	clear(s.blocks)
}

// Next evaluates a pass and begins the next. The first pass counts elements, later passes bisect.
func (s *percentiles) Next() bool {
	open := s.pass == 0
	for i := range s.blocks {
		b := &s.blocks[i]
		switch s.pass {
		case 0:
		case 1:
			s.rank(i)
		default:
			b.upper.halve(b.index)
			b.lower.halve(b.n - 1 - b.index)
		}
		open = open || b.upper.open() || b.lower.open()
	}
	if !open {
		s.finish()
		return false
	}
	s.pass++
	return true
}

// rank begins the bisection of a block: which elements to find, and in which range.
func (s *percentiles) rank(i int) {
	b := &s.blocks[i]
	at := min(int64(s.p/100*float64(b.n)), b.n-1)
	b.index = max(at, b.n-1-at)
	if b.index >= b.n-1 {
		return // no element is left out
	}
	low := -s.hi[i]
	if s.codec.ZeroPoint {
		low = s.lo[i]
	}
	b.upper = bisected{from: kernels.Ordered(low), to: kernels.Ordered(s.hi[i])}
	b.lower = b.upper
}

func (b bisected) open() bool { return b.from < b.to }

// halve keeps the half that contains the value at an index.
func (b *bisected) halve(index int64) {
	if b.count > index {
		b.to = b.middle()
	} else {
		b.from = min(b.middle()+1, b.to)
	}
	b.count = 0
}

// Piece counts elements.
func (s *percentiles) Piece(block int, x []float32) {
	b := &s.blocks[block]
	if s.pass == 1 {
		b.n += int64(len(x))
		return
	}
	if !b.upper.open() && !b.lower.open() {
		return
	}
	high, low := b.upper.middle(), b.lower.middle()
	for _, v := range x {
		o := kernels.Ordered(v)
		if o <= high {
			b.upper.count++
		}
		if o <= low {
			b.lower.count++
		}
	}
}

func (s *percentiles) finish() {
	for i, b := range s.blocks {
		if b.index >= b.n-1 {
			continue
		}
		up, down := max(kernels.FromOrdered(b.upper.to), 0), min(kernels.FromOrdered(b.lower.to), 0)
		switch {
		case up == 0 && down == 0:
		case s.codec.ZeroPoint:
			s.lo[i], s.hi[i] = down, up
		default:
			s.hi[i] = max(up, -down)
		}
	}
}
