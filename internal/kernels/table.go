package kernels

import (
	"math"
	"math/bits"
	"slices"
)

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
type Nearest struct {
	Values [256]float32 // the numbers, over and over

	steps [2*nearestSteps + 1]nearestStep
	ranks *ranks // nil if there are more than 16 different numbers
}

// ranks are the bits of at most 16 numbers in ascending order, with their codes. A number above limit
// i has a rank above i. The limits are a search tree with root 1: the limits below node 2i are at most
// that of node i, and those below node 2i+1 are greater. Missing limits are +Inf.
type ranks struct {
	tree, values, codes [16]uint32
}

func newRanks(n *Nearest) *ranks {
	r := &ranks{}
	code := n.steps[0].below
	r.values[0], r.codes[0] = math.Float32bits(n.Values[code]), uint32(code)
	limits := slices.Repeat([]float32{float32(math.Inf(1))}, 15)
	rank := 0
	for _, s := range n.steps {
		if s.below == s.above {
			continue
		}
		if rank == len(limits) {
			return nil
		}
		limits[rank] = s.limit
		rank++
		r.values[rank], r.codes[rank] = math.Float32bits(n.Values[s.above]), uint32(s.above)
	}
	for node := range uint(15) {
		node++
		level := bits.Len(node) - 1
		nth := int(node) - 1<<level
		r.tree[node] = math.Float32bits(limits[(2*nth+1)<<(3-level)-1])
	}
	return r
}

// nearestSteps is how many equal steps from 0 to 1 a Nearest is divided into.
const nearestSteps = 256

// nearestStep has the nearest values on both sides of a limit near a multiple of 1/nearestSteps.
type nearestStep struct {
	limit        float32 // the last number that below is the nearest of
	below, above byte
}

// NewNearest returns a Nearest that finds the index of the nearest of values. Of two equally near it
// is the one nearer to 0, of equal ones the first. Midpoints of neighbours are more than
// 1/nearestSteps apart.
func NewNearest(values []float32) *Nearest {
	return NewNearestBy(values, func(x float32) byte {
		best, v := 0, float64(x)
		for i, w := range values {
			d, least := math.Abs(float64(w)-v), math.Abs(float64(values[best])-v)
			if d < least || d == least && math.Abs(float64(w)) < math.Abs(float64(values[best])) {
				best = i
			}
		}
		return byte(best)
	})
}

// NewNearestBy returns what finds the index of a value by another rule than the distance. The index
// changes at most once within 0.5/nearestSteps of each multiple of 1/nearestSteps.
func NewNearestBy(values []float32, index func(x float32) byte) *Nearest {
	n := &Nearest{}
	for i := range n.Values {
		n.Values[i] = values[i%len(values)]
	}
	for i := range n.steps {
		lo := (float32(i-nearestSteps) - 0.5) / nearestSteps
		hi := (float32(i-nearestSteps) + 0.5) / nearestSteps
		s := &n.steps[i]
		*s = nearestStep{lo, index(lo), index(hi)}
		for s.below != s.above {
			mid := lo + (hi-lo)/2
			if mid == lo || mid == hi {
				break
			}
			if index(mid) == s.below {
				lo = mid
			} else {
				hi = mid
			}
		}
		s.limit = lo
	}
	n.ranks = newRanks(n)
	return n
}

// Adding stepMagic rounds a number to a multiple of 1/nearestSteps, whose index is then in the low
// bits of the sum. The bits of larger numbers are beyond all indices.
const (
	stepMagic     = magic / nearestSteps
	stepMagicBits = magicBits - 8<<23 // nearestSteps is 2^8
)

// code returns the index of the value nearest to x/scale. A scale of 0 goes with an x of 0.
func (n *Nearest) code(x, scale float32) byte {
	if scale == 0 {
		scale = 1
	}
	v := x / scale
	b := int32(math.Float32bits(v + stepMagic))
	s := &n.steps[min(max(b, stepMagicBits-nearestSteps), stepMagicBits+nearestSteps)-(stepMagicBits-nearestSteps)]
	code, above := s.below, s.above
	if v > s.limit {
		code = above
	}
	return code
}
