package kernels

import "math"

// Weighting says how the errors of elements are weighted in a search.
type Weighting int

const (
	Given        Weighting = iota // weights given by the caller
	Magnitudes                    // |x|
	AboveAverage                  // |x| plus the root of the mean of its block's x²
	Squares                       // x²
)

// weigh sets w to the weights of a block that are not given.
func (k Weighting) weigh(w, x []float32) {
	switch k {
	case Magnitudes:
		for i, v := range x {
			w[i] = Abs(v)
		}
	case AboveAverage:
		var sum float32
		for _, v := range x {
			sum += float32(v * v)
		}
		root := float32(math.Sqrt(float64(sum / float32(len(x)))))
		for i, v := range x {
			w[i] = root + Abs(v)
		}
	case Squares:
		for i, v := range x {
			w[i] = v * v
		}
	}
}

// maxSearchBlock is the most elements that a block may have in a search.
const maxSearchBlock = 32

// weights returns the weights of a block of x that starts at element at: those of w or, without w,
// computed into the buffer.
func (k Weighting) weights(buffer *[maxSearchBlock]float32, x, w []float32, at, block int) []float32 {
	if k == Given {
		return w[at:][:block]
	}
	k.weigh(buffer[:block], x[at:][:block])
	return buffer[:block]
}

// AffineSearch searches the scale and the least value of blocks whose codes count from 0: code q
// decodes to scale*q - min, where min is not negative.
type AffineSearch struct {
	Block       int       // the elements of a block: 16 or 32
	Last        float32   // the greatest code
	First, Step float32   // a try has the range that many codes: Last+First, Last+First+Step, …
	Tries       int       // how many of these are tried, at most 40
	Absolute    bool      // errors are weighted by magnitude, not squared
	Weighting   Weighting // of errors
}

// AffineFits holds the scale and the min found for each block. Codes computes the best codes for them
// from Inverse and Low.
type AffineFits struct{ Scale, Min, Inverse, Low []float32 }

// Find searches each block of x for the least sum of weighted errors. w, if given, has the weights,
// which are not negative. It starts from the range of the elements, extended to 0, and fits scale and
// min to the codes of each try. If a try is better, the ranges of the following tries start at its
// min. A block with a single value below 0, or of zeros, gets that min and the scale 0.
//
// Sums of a block are in the order of its elements.
func (s *AffineSearch) Find(f AffineFits, x, w []float32) { s.find(f, x, w) }

func (s *AffineSearch) findGo(f AffineFits, x, w []float32) {
	var buffer [maxSearchBlock]float32
	for i := range f.Scale {
		at := i * s.Block
		w := s.Weighting.weights(&buffer, x, w, at, s.Block)
		f.Scale[i], f.Min[i], f.Inverse[i], f.Low[i] = s.one(x[at:][:s.Block], w)
	}
}

// codes returns how many codes the range has in a try.
func (s *AffineSearch) codes(try int) float32 {
	return s.First + float32(s.Step*float32(try)) + s.Last
}

func (s *AffineSearch) one(x, w []float32) (scale, least, inverse, low float32) {
	low, high := x[0], x[0]
	var sumW, sumX float32
	for i, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	if low > 0 {
		low = 0
	}
	if high == low {
		return 0, -low, 0, low
	}
	inverse = s.Last / (high - low)
	scale, least = 1/inverse, low
	best := s.error(x, w, inverse, low, scale, least)
	for try := range s.Tries {
		in := s.codes(try) / (high - least)
		var sumQ, sumQQ, sumXQ float32
		for i, v := range x {
			q := s.code(v, in, least)
			wq := float32(w[i] * q)
			sumQ += wq
			sumQQ += float32(wq * q)
			sumXQ += float32(wq * v)
		}
		det := float32(sumW*sumQQ) - float32(sumQ*sumQ)
		if !(det > 0) {
			continue
		}
		fitted := (float32(sumW*sumXQ) - float32(sumX*sumQ)) / det
		from := (float32(sumQQ*sumX) - float32(sumQ*sumXQ)) / det
		if from > 0 {
			fitted, from = sumXQ/sumQQ, 0
		}
		if e := s.error(x, w, in, least, fitted, from); e < best {
			best, inverse, low = e, in, least
			scale, least = fitted, from
		}
	}
	return scale, -least, inverse, low
}

// error returns the weighted sum of errors of codes, which represent scale*q + least.
func (s *AffineSearch) error(x, w []float32, inverse, low, scale, least float32) float32 {
	var sum float32
	for i, v := range x {
		d := float32(scale*s.code(v, inverse, low)) + least - v
		if s.Absolute {
			d = Abs(d)
		} else {
			d *= d
		}
		sum += float32(w[i] * d)
	}
	return sum
}

func (s *AffineSearch) code(v, inverse, low float32) float32 {
	return clamp(nearestInteger(inverse*(v-low)), 0, s.Last)
}

// Codes sets q to the codes of a block, by what Find found.
func (s *AffineSearch) Codes(q []byte, x []float32, inverse, low float32) {
	for i, v := range x {
		q[i] = byte(s.code(v, inverse, low))
	}
}

// SymmetricSearch searches the scale of blocks whose codes count from -Half to Half-1: code q decodes
// to scale*q. Scales may be negative.
type SymmetricSearch struct {
	Block     int // the elements of a block: 16 or 32
	Half      float32
	Weighting Weighting // of errors
}

// Negligible is the magnitude below which a block is treated as zeros.
const Negligible = 1e-15

// Find searches each block of x for the least sum of weighted squared errors. w, if given, has the
// weights, which are not negative. It makes 19 tries, in which the element of the largest magnitude
// becomes -Half, then -(Half-0.9) … -(Half+0.9), and fits a scale to the codes of each. The best wins,
// the earliest among equals. It returns the scale, and the inverse of the scale whose codes it fits;
// both are 0 for a block of zeros.
//
// Sums of a block are in the order of its elements.
func (s *SymmetricSearch) Find(scale, inverse, x, w []float32) { s.find(scale, inverse, x, w) }

func (s *SymmetricSearch) findGo(scale, inverse, x, w []float32) {
	var buffer [maxSearchBlock]float32
	for i := range scale {
		at := i * s.Block
		w := s.Weighting.weights(&buffer, x, w, at, s.Block)
		scale[i], inverse[i] = s.one(x[at:][:s.Block], w)
	}
}

// symmetricTries is how many codes the element of largest magnitude is to have, one
// after another.
const symmetricTries = 19

// extreme returns the code of the element of largest magnitude in a try.
func (s *SymmetricSearch) extreme(try int) float32 {
	switch {
	case try == 0:
		return -s.Half
	case try <= 9:
		try -= 10
	default:
		try -= 9
	}
	return -(s.Half + float32(0.1*float32(try)))
}

func (s *SymmetricSearch) one(x, w []float32) (scale, inverse float32) {
	var largest float32
	for _, v := range x {
		if Abs(v) > Abs(largest) {
			largest = v
		}
	}
	if Abs(largest) < Negligible {
		return 0, 0
	}
	inverse = s.extreme(0) / largest
	xq, qq := s.sums(x, w, inverse)
	if qq != 0 {
		scale = xq / qq
	}
	best := scale * xq
	for try := 1; try < symmetricTries; try++ {
		in := s.extreme(try) / largest
		xq, qq := s.sums(x, w, in)
		if qq > 0 && float32(xq*xq) > float32(best*qq) {
			scale, inverse = xq/qq, in
			best = scale * xq
		}
	}
	return scale, inverse
}

// sums returns the weighted sums of elements times codes and of codes squared.
func (s *SymmetricSearch) sums(x, w []float32, inverse float32) (xq, qq float32) {
	for i, v := range x {
		q := s.code(v, inverse)
		xq += float32(float32(w[i]*v) * q)
		qq += float32(float32(w[i]*q) * q)
	}
	return xq, qq
}

func (s *SymmetricSearch) code(v, inverse float32) float32 {
	return clamp(nearestInteger(inverse*v), -s.Half, s.Half-1)
}

// Codes sets q to the codes of a block plus Half, from the inverse that Find returned; to 0 if that is
// 0.
func (s *SymmetricSearch) Codes(q []byte, x []float32, inverse float32) {
	for i, v := range x {
		q[i] = 0
		if inverse != 0 {
			q[i] = byte(s.code(v, inverse) + s.Half)
		}
	}
}

// Abs returns |v|.
func Abs(v float32) float32 { return math.Float32frombits(abs(v)) }

// integers is added to and subtracted from a number to round it to an integer, ties to even.
const integers = 3 << 22

// nearestInteger rounds v, of magnitude 2^22 at most, to an integer. Larger ones stay
// beyond that. The conversion keeps a product from being fused with the addition.
func nearestInteger(v float32) float32 { return float32(v) + integers - integers }

// clamp limits v to lo … hi; a NaN becomes lo.
func clamp(v, lo, hi float32) float32 {
	if !(v > lo) {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

// Recode sets q to the codes, at most last, of the blocks of x: the nearest integers to
// (x+least)/scale, by the block's scale and least, plus zero. Like in Find, rounding is an addition to
// a large number; for numbers too large, the code is the last bits of the sum. Blocks are multiples of
// 16.
func Recode(q []byte, x, scale, least []float32, zero, last int) {
	if len(scale) == 0 {
		return
	}
	block := len(x) / len(scale)
	if len(q) != len(x) || len(least) != len(scale) || len(x) != block*len(scale) || block%16 != 0 {
		panic("kernels: blocks do not fit together")
	}
	recode(q, x, scale, least, block, zero, last)
}

func recodeGo(q []byte, x, scale, least []float32, block, zero, last int) {
	for i, v := range x {
		b := i / block
		q[i] = byte(max(0, min(NearestInt((v+least[b])/scale[b])+zero, last)))
	}
}

// NearestInt rounds v to an integer, ties to even, by an addition to a large number. From 2^22 on the
// result is the last bits of the sum.
func NearestInt(v float32) int {
	return int(math.Float32bits(float32(v)+integers)&(1<<23-1)) - 1<<22
}
