package kernels

import "math"

// AffineSearch looks for the scale and the least value of blocks whose codes count
// from 0: element v of code q is to be near scale*q - min, where min is not negative.
type AffineSearch struct {
	Block       int     // the elements of a block
	Last        float32 // the greatest code
	First, Step float32 // a try has the range that many codes: Last+First, Last+First+Step, …
	Tries       int     // how many of these are tried
	Absolute    bool    // errors count by magnitude, not squared
}

// AffineFits holds for each block the scale and the min that were found, and the way
// to the codes that these fit best, see Codes.
type AffineFits struct{ Scale, Min, Inverse, Low []float32 }

// Find searches each block of x for the least sum of errors, weighted by w, which are
// not negative. It starts from the range of the elements, its least at most 0, and
// fits scale and min to the codes of each try. If that is better, the range of the
// following tries starts at this min. A block of a single value below 0, or of zeros,
// gets that min and the scale 0.
//
// Sums of a block go in the order of its elements.
func (s *AffineSearch) Find(f AffineFits, x, w []float32) { s.find(f, x, w) }

func (s *AffineSearch) findGo(f AffineFits, x, w []float32) {
	for i := range f.Scale {
		at := i * s.Block
		f.Scale[i], f.Min[i], f.Inverse[i], f.Low[i] = s.one(x[at:][:s.Block], w[at:][:s.Block])
	}
}

func (s *AffineSearch) one(x, w []float32) (scale, least, inverse, low float32) {
	low, high := x[0], x[0]
	sumW, sumX := w[0], w[0]*x[0]
	for i, v := range x[1:] {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
		sumW += w[i+1]
		sumX += float32(w[i+1] * v)
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
		in := (s.First + float32(s.Step*float32(try)) + s.Last) / (high - least)
		var sumQ, sumQQ, sumXQ float32
		for i, v := range x {
			q := s.code(v, in, least)
			wq := w[i] * q
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

// error returns the weighted sum of errors of codes, which stand for scale*q + least.
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

// SymmetricSearch looks for the scale of blocks whose codes count from -Half to
// Half-1: element v of code q is to be near scale*q. Scales may be negative.
type SymmetricSearch struct {
	Block int // the elements of a block
	Half  float32
}

// Negligible is a magnitude from which on blocks are not taken for zeros.
const Negligible = 1e-15

// Find searches each block of x for the least sum of squared errors, weighted by w,
// which are not negative. It fits a scale to the codes of each of 19 tries, by which
// the element of largest magnitude is -Half and then -(Half-0.9) … -(Half+0.9), and
// keeps the best one, the earliest among equals. It returns the scale, and the
// inverse of the one whose codes it fits, both 0 for a block of zeros.
//
// Sums of a block go in the order of its elements.
func (s *SymmetricSearch) Find(scale, inverse, x, w []float32) { s.find(scale, inverse, x, w) }

func (s *SymmetricSearch) findGo(scale, inverse, x, w []float32) {
	for i := range scale {
		at := i * s.Block
		scale[i], inverse[i] = s.one(x[at:][:s.Block], w[at:][:s.Block])
	}
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
	inverse = -s.Half / largest
	xq, qq := s.sums(x, w, inverse)
	if qq != 0 {
		scale = xq / qq
	}
	best := scale * xq
	for try := float32(-9); try <= 9; try++ {
		if try == 0 {
			continue
		}
		in := -(s.Half + float32(0.1*try)) / largest
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

// Codes sets q to the codes of a block plus Half, by what Find found; to 0 if that is
// nothing.
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

// integers is added to and taken off a number to round it to an integer, ties to even.
const integers = 3 << 22

// nearestInteger rounds v, of magnitude 2^22 at most, to an integer. Larger ones stay
// beyond that.
func nearestInteger(v float32) float32 { return v + integers - integers }

// clamp returns v if lo <= v <= hi, else the end that it is beyond; lo for a NaN.
func clamp(v, lo, hi float32) float32 {
	if !(v > lo) {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

func (s *AffineSearch) find(f AffineFits, x, w []float32) { s.findGo(f, x, w) }

func (s *SymmetricSearch) find(scale, inverse, x, w []float32) { s.findGo(scale, inverse, x, w) }
