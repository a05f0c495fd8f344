package calibrate

import (
	"math"

	"onnxquant/calib"
)

// magnitudes counts values by their exponent.
type magnitudes [256]uint64

func (m *magnitudes) count(x []float32) {
	for _, v := range x {
		m[exponent(v)]++
	}
}

// exponent returns the exponent e in the bits of x: 2^(e-127) ≤ |x| < 2^(e-126).
func exponent(x float32) uint32 { return math.Float32bits(x) >> 23 & 0xff }

// typical returns the median, within a factor of 1.5, of the magnitudes that are not 0 and below half
// of the largest in r. ok is false if there are none, as in a mask.
func (m *magnitudes) typical(r calib.Range) (float64, bool) {
	end := exponent(float32(max(-r.Min, r.Max))) - 1 // largest/2 has this exponent
	if end > 255 {                                   // 0 or subnormal
		return 0, false
	}
	var all, seen uint64
	for _, n := range m[1:max(end, 1)] {
		all += n
	}
	for e := uint32(1); e < end; e++ {
		if seen += m[e]; 2*seen >= all && all > 0 {
			return 1.5 * math.Exp2(float64(e)-127), true
		}
	}
	return 0, false
}
