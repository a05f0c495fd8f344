package kernels

// GridLanes is the number of blocks in a GridSearch.
const GridLanes = 16

// GridSearch searches scales for blocks side by side, one in each lane: element i of block j is
// x[i*GridLanes+j]. Codes are nearest integers from -zero to Steps-zero. The best scale is the one
// whose codes, as a vector, have the least angle to the elements: the greatest ⟨x,q⟩²/⟨q,q⟩.
//
// Elements and scales are in units of the largest element of their block. Scales are given by their
// inverses: the number of codes per unit. Sums of a block are in float32, in the order of its
// elements.
type GridSearch struct {
	// Input: the scales to try. The zero point of an inverse t is Middle - Slope·t, rounded.
	PerUnit         [GridLanes]float32 // one over the unit
	First, Distance [GridLanes]float32 // of the inverses
	Middle, Slope   [GridLanes]float32

	// Output: the best scale.
	Inverse, Zero [GridLanes]float32
	XX, XQ, QQ    [GridLanes]float32 // ⟨x,x⟩, ⟨x,q⟩, ⟨q,q⟩
	most          [GridLanes]float32 // XQ²/QQ

	tries [2]gridTry

	Steps             float32
	LeastZero, ToZero float32 // limits of zero points
}

// gridTry is an inverse and a zero point to try.
type gridTry struct{ inverse, zero [GridLanes]float32 }

// Blocks of more than largeBlock elements depend less on single elements, and their inverses are
// farther apart. Fewer are tried first, then more around the best.
const largeBlock = 64

// GridTries is how many inverses are tried first for a block with this number of elements. It is even.
func GridTries(elements int) int {
	if elements > largeBlock {
		return 12
	}
	return 16
}

// Find tries inverses at even distances with their zero points or, if all is set, also with the zero
// points next to these. Then it tries the best inverse with the zero points next to the best one. Then
// it tries inverses around the best at a quarter of the distance and, in large blocks, at a quarter of
// that. Of equals the first wins. XQ stays 0 in a lane whose codes are all zero.
func (s *GridSearch) Find(x []float32, all bool) {
	var none [GridLanes]float32
	s.Inverse, s.Zero, s.XX, s.XQ, s.QQ, s.most = none, none, none, none, none, none
	if len(x) > 0 {
		s.find(x, all)
	}
}

func (s *GridSearch) findGo(x []float32, all bool) {
	for i, v := range x {
		u := v * s.PerUnit[i%GridLanes]
		s.XX[i%GridLanes] += float32(u * u)
	}
	tries := float32(GridTries(len(x) / GridLanes))
	beside := []float32{0, -1, 1}
	if !all {
		beside = beside[:1]
	}
	for _, b := range beside {
		for i := float32(0.5); i < tries; i += 2 {
			for lane, first := range s.First {
				d := s.Distance[lane]
				s.set(lane, 0, first+float32(d*i), b)
				s.set(lane, 1, first+float32(d*(i+1)), b)
			}
			s.try(x)
		}
	}
	for lane, z := range s.Zero {
		for i := range s.tries {
			t := &s.tries[i]
			t.inverse[lane] = s.Inverse[lane]
			t.zero[lane] = clamp(z+float32(2*i-1), s.LeastZero, s.ToZero)
		}
	}
	s.try(x)
	for _, part := range roundParts[:gridRounds(x)] {
		center := s.Inverse
		for off := float32(0.25); off < 1; off += 0.25 {
			for lane, t := range center {
				d := float32(s.Distance[lane] * float32(off*part))
				s.tries[0].inverse[lane], s.tries[0].zero[lane] = t-d, s.Zero[lane]
				s.tries[1].inverse[lane], s.tries[1].zero[lane] = t+d, s.Zero[lane]
			}
			s.try(x)
		}
	}
}

// roundParts are the parts of the distance that rounds of tries around the best have.
var roundParts = [...]float32{1, 0.25}

// gridRounds is the number of these rounds.
func gridRounds(x []float32) int {
	if len(x) > largeBlock*GridLanes {
		return 2
	}
	return 1
}

// set sets a try to an inverse and the zero point that it has, moved.
func (s *GridSearch) set(lane, try int, t, move float32) {
	z := nearestInteger(s.Middle[lane]-float32(s.Slope[lane]*t)) + move
	s.tries[try].inverse[lane], s.tries[try].zero[lane] = t, clamp(z, s.LeastZero, s.ToZero)
}

// try keeps what of two tries is better than all before.
func (s *GridSearch) try(x []float32) {
	for i := range s.tries {
		t := &s.tries[i]
		var inverse, from, to, xq, qq [GridLanes]float32
		for lane, z := range t.zero {
			inverse[lane] = t.inverse[lane] * s.PerUnit[lane]
			from[lane], to[lane] = 0-z, s.Steps-z
		}
		for row := x; len(row) > 0; row = row[GridLanes:] {
			for lane, v := range row[:GridLanes] {
				q := clamp(nearestInteger(v*inverse[lane]), from[lane], to[lane])
				xq[lane] += float32(v * q)
				qq[lane] += float32(q * q) // exact: it does not matter that assembly fuses this
			}
		}
		for lane := range GridLanes {
			p := xq[lane] * s.PerUnit[lane]
			if c := float32(p*p) / qq[lane]; c > s.most[lane] {
				s.most[lane], s.XQ[lane], s.QQ[lane] = c, p, qq[lane]
				s.Inverse[lane], s.Zero[lane] = t.inverse[lane], t.zero[lane]
			}
		}
	}
}

// AddGridErrors adds the squared errors of blocks side by side, as in a GridSearch, to e. Codes are
// those of QuantizeColumns with the scales of grid; they are decoded as multiples of scale. Squares
// are added in the order of elements.
func AddGridErrors(e *[GridLanes]float64, x []float32, grid, scale *[GridLanes]float32, zero *[GridLanes]byte, f Format) {
	if len(x) > 0 {
		addGridErrors(e, x, grid, scale, zero, f)
	}
}

func addGridErrorsGo(e *[GridLanes]float64, x []float32, grid, scale *[GridLanes]float32, zero *[GridLanes]byte, f Format) {
	var p piece
	var q [GridLanes]byte
	var sums ErrorSums
	for lane, z := range zero {
		p.scale[lane], p.zero[lane] = grid[lane], zeroPoint(z, f.Lo)
	}
	for ; len(x) > 0; x = x[GridLanes:] {
		p.quantize(q[:], x[:GridLanes], f, &sums)
		y := p.decoded[:GridLanes]
		for lane, z := range zero {
			y[lane] = float32(zeroPoint(q[lane], f.Lo)-zeroPoint(z, f.Lo)) * scale[lane]
		}
		round(y, f.Type)
		for lane, v := range x[:GridLanes] {
			d := float64(v) - float64(y[lane])
			e[lane] += float64(d * d)
		}
	}
}

// ColumnLanes copies at most GridLanes columns of x side by side into dst: n columns from column first
// on, and of each the elements from, from+step, … below to. x has rows of width elements. Unused lanes
// are zero.
func ColumnLanes(dst, x []float32, width, first, n, from, to, step int) {
	if n < GridLanes {
		clear(dst)
	}
	for r := from; r < to; r += step {
		row := x[r*width+first:][:n]
		if n == GridLanes {
			*(*[GridLanes]float32)(dst) = *(*[GridLanes]float32)(row)
		} else {
			copy(dst, row)
		}
		dst = dst[GridLanes:]
	}
}

// BlockLanes is ColumnLanes for blocks in rows of k elements, see Blocks. Elements that a block has
// not are zeros.
func BlockLanes(dst, x []float32, k, block, first, n, from, to, step int) {
	clear(dst)
	perRow := (k-1)/block + 1
	for lane := range n {
		row, b := (first+lane)/perRow, (first+lane)%perRow
		start := row*k + b*block
		at := lane
		for i := from; i < min(to, k-b*block); i += step {
			dst[at] = x[start+i]
			at += GridLanes
		}
	}
}
