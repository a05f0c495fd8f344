package kernels

import "math"

// AbsMax returns the largest of acc, which is not negative, and all |x[i]|. If x
// holds a NaN the result is a NaN, else if it holds an infinity it is infinite.
func AbsMax(acc float32, x []float32) float32 {
	a, b, c, d := math.Float32bits(acc), uint32(0), uint32(0), uint32(0) // four chains, so that none waits for itself
	for ; len(x) >= 4; x = x[4:] {
		a = max(a, abs(x[0]))
		b = max(b, abs(x[1]))
		c = max(c, abs(x[2]))
		d = max(d, abs(x[3]))
	}
	for _, v := range x {
		a = max(a, abs(v))
	}
	return math.Float32frombits(max(a, b, c, d))
}

// AbsMaxColumns raises each acc[i], which is not negative, to the largest
// |x[r*len(acc)+i]|. Non-finite elements show in acc as in AbsMax.
func AbsMaxColumns(acc, x []float32) {
	for ; len(x) > 0; x = x[len(acc):] {
		row := x[:len(acc)]
		for i, v := range row {
			acc[i] = math.Float32frombits(max(math.Float32bits(acc[i]), abs(v)))
		}
	}
}

// Range widens the range lo … hi, which contains 0, to hold all of x. If x holds
// a NaN, one end becomes a NaN; an infinity is simply the least or the greatest.
func Range(lo, hi float32, x []float32) (float32, float32) {
	// How far the range reaches below and above 0, as bits: taken as signed
	// integers, those of numbers of the other sign are negative.
	down, up := int32(abs(lo)), int32(abs(hi))
	for _, v := range x {
		b := int32(math.Float32bits(v))
		up = max(up, b)
		down = max(down, b^math.MinInt32)
	}
	return math.Float32frombits(uint32(down) | signBit), math.Float32frombits(uint32(up))
}

// RangeColumns widens each range lo[i] … hi[i], which contains 0, to hold all
// x[r*len(hi)+i]. Non-finite elements show as in Range.
func RangeColumns(lo, hi, x []float32) {
	lo = lo[:len(hi)]
	for ; len(x) > 0; x = x[len(hi):] {
		row := x[:len(hi)]
		for i, v := range row {
			b := int32(math.Float32bits(v))
			down, up := int32(abs(lo[i])), int32(abs(hi[i]))
			hi[i] = math.Float32frombits(uint32(max(up, b)))
			lo[i] = math.Float32frombits(uint32(max(down, b^math.MinInt32)) | signBit)
		}
	}
}
