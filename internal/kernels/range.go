package kernels

import "math"

// AbsMax returns the largest of acc, which is not negative, and all |x[i]|. If x
// holds a NaN the result is a NaN, else if it holds an infinity it is infinite.
func AbsMax(acc float32, x []float32) float32 {
	m := [1]float32{acc}
	if len(x) > 0 {
		absMaxBlocks(m[:], x, len(x))
	}
	return m[0]
}

// AbsMaxBlocks raises acc[i] as AbsMax does by the elements of block i, see Blocks.
func AbsMaxBlocks(acc, x []float32, k, block int) {
	for first, r := range runs(len(x), k, block) {
		absMaxBlocks(acc[first:first+r.blocks], x[r.start:r.end], block)
	}
}

// AbsMaxColumns raises each acc[i], which is not negative, to the largest
// |x[r*len(acc)+i]|. Non-finite elements show in acc as in AbsMax.
func AbsMaxColumns(acc, x []float32) {
	CheckColumns(len(x), len(acc))
	if len(x) > 0 {
		absMaxColumns(acc, x)
	}
}

// RangeBlocks widens each range lo[i] … hi[i], which contains 0, to hold block i
// of x, see Blocks. If that holds a NaN, one end becomes a NaN; an infinity is
// simply the least or the greatest.
func RangeBlocks(lo, hi, x []float32, k, block int) {
	for first, r := range runs(len(x), k, block) {
		n := first + r.blocks
		rangeBlocks(lo[first:n], hi[first:n], x[r.start:r.end], block)
	}
}

// RangeColumns widens each range lo[i] … hi[i], which contains 0, to hold all
// x[r*len(hi)+i]. Non-finite elements show as in RangeBlocks.
func RangeColumns(lo, hi, x []float32) {
	CheckColumns(len(x), len(hi))
	if len(x) > 0 {
		rangeColumns(lo[:len(hi)], hi, x)
	}
}

func absMaxBlocksGo(acc, x []float32, block int) {
	for i, a := range acc {
		m := abs(a)
		for _, v := range x[i*block : i*block+min(block, len(x)-i*block)] {
			m = max(m, abs(v))
		}
		acc[i] = math.Float32frombits(m)
	}
}

func absMaxColumnsGo(acc, x []float32) {
	for ; len(x) > 0; x = x[len(acc):] {
		row := x[:len(acc)]
		for i, a := range acc {
			acc[i] = math.Float32frombits(max(abs(a), abs(row[i])))
		}
	}
}

// Ranges are kept as distances below and above 0, as bits. As signed integers, the bits of numbers of
// the other sign are negative.

func rangeBlocksGo(lo, hi, x []float32, block int) {
	for i, h := range hi {
		down, up := int32(abs(lo[i])), int32(abs(h))
		for _, v := range x[i*block : i*block+min(block, len(x)-i*block)] {
			b := int32(math.Float32bits(v))
			up = max(up, b)
			down = max(down, b^math.MinInt32)
		}
		lo[i], hi[i] = math.Float32frombits(uint32(down)|signBit), math.Float32frombits(uint32(up))
	}
}

func rangeColumnsGo(lo, hi, x []float32) {
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
