package kernels

import "math"

// AbsMax returns the largest of acc, which is not negative, and all |x[i]|. If x
// holds a NaN the result is a NaN, else if it holds an infinity it is infinite.
func AbsMax(acc float32, x []float32) float32 {
	m := abs(acc)
	for _, v := range x {
		m = max(m, abs(v))
	}
	return math.Float32frombits(m)
}

// AbsMaxColumns raises each acc[i], which is not negative, to the largest
// |x[r*len(acc)+i]|. Non-finite elements show in acc as in AbsMax.
func AbsMaxColumns(acc, x []float32) {
	for ; len(x) > 0; x = x[len(acc):] {
		row := x[:len(acc)]
		for i, a := range acc {
			acc[i] = math.Float32frombits(max(abs(a), abs(row[i])))
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
		for i, h := range hi {
			down, up := int32(abs(lo[i])), int32(abs(h))
			b := int32(math.Float32bits(row[i]))
			hi[i] = math.Float32frombits(uint32(max(up, b)))
			lo[i] = math.Float32frombits(uint32(max(down, b^math.MinInt32)) | signBit)
		}
	}
}
