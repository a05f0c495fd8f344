package kernels

import "math"

// DecodeBlock sets x[i] to values[q[i]] * scale.
func DecodeBlock(x []float32, q []byte, scale float32, values *[256]float32) {
	x = x[:len(q)]
	for i, c := range q {
		x[i] = values[c] * scale
	}
}

// DecodeColumns decodes each row of q as DecodeBlock does, column i with the scale
// scale[i]*factor.
func DecodeColumns(x []float32, q []byte, scale []float32, factor float32, values *[256]float32) {
	for ; len(q) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := q[:len(scale)], x[:len(scale)]
		for i, s := range scale {
			out[i] = values[row[i]] * float32(s*factor)
		}
	}
}

// Nearest finds the nearest of some numbers between -1 and 1.
type Nearest [2*nearestSteps + 1]nearestStep

// nearestSteps is how many equal steps from 0 to 1 a Nearest is divided into.
const nearestSteps = 256

// nearestStep is what is nearest around a multiple of 1/nearestSteps.
type nearestStep struct {
	limit        float32 // the last number that below is the nearest of
	below, above byte
}

// NewNearest returns what finds the index of the nearest of values, or of two
// that are equally near the one nearer to 0, or of equal ones the first. Midpoints
// of neighbours are more than 1/nearestSteps apart.
func NewNearest(values []float32) *Nearest {
	index := func(v float64) byte {
		best := 0
		for i, w := range values {
			d, least := math.Abs(float64(w)-v), math.Abs(float64(values[best])-v)
			if d < least || d == least && math.Abs(float64(w)) < math.Abs(float64(values[best])) {
				best = i
			}
		}
		return byte(best)
	}
	n := &Nearest{}
	for i := range n {
		lo := (float32(i-nearestSteps) - 0.5) / nearestSteps
		hi := (float32(i-nearestSteps) + 0.5) / nearestSteps
		n[i] = nearestStep{lo, index(float64(lo)), index(float64(hi))}
		for n[i].below != n[i].above {
			mid := lo + (hi-lo)/2
			if mid == lo || mid == hi {
				break
			}
			if index(float64(mid)) == n[i].below {
				lo = mid
			} else {
				hi = mid
			}
		}
		n[i].limit = lo
	}
	return n
}

// stepMagic rounds what it is added to to a multiple of 1/nearestSteps, whose number is
// then the low part of the sum's bits. Bits of other sums are beyond these.
const (
	stepMagic     = magic / nearestSteps
	stepMagicBits = magicBits - 8<<23 // nearestSteps is 2^8
)

// code returns the index of the value nearest to x/scale, whose magnitude is at
// most 1. A scale of 0 goes with an x of 0.
func (n *Nearest) code(x, scale float32) byte {
	if scale == 0 {
		scale = 1
	}
	v := x / scale
	b := int32(math.Float32bits(v + stepMagic))
	s := &n[min(max(b, stepMagicBits-nearestSteps), stepMagicBits+nearestSteps)-(stepMagicBits-nearestSteps)]
	code, above := s.below, s.above
	if v > s.limit {
		code = above
	}
	return code
}

// EncodeNearestBlock sets q[i] to the index of the value nearest to x[i]/scale.
// No |x[i]| is above the scale.
func EncodeNearestBlock(q []byte, x []float32, scale float32, n *Nearest) {
	q = q[:len(x)]
	for i, v := range x {
		q[i] = n.code(v, scale)
	}
}

// EncodeNearestColumns encodes each row of x as EncodeNearestBlock does, column i
// with scale[i].
func EncodeNearestColumns(q []byte, x, scale []float32, n *Nearest) {
	for ; len(x) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := x[:len(scale)], q[:len(scale)]
		for i, s := range scale {
			out[i] = n.code(row[i], s)
		}
	}
}
