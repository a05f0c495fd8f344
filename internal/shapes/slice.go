package shapes

import "math"

// Slice returns the first index and the number of indices that a Slice takes along an axis of n
// elements. Negative positions count from the end; step is not 0. Positions outside are clamped as in
// ONNX Runtime. onnx's ReferenceEvaluator differs: it takes nothing if a backward slice starts before
// the first element.
func Slice(start, end, step, n int64) (first, count int64) {
	if start < 0 {
		start += n
	}
	if end < 0 {
		end += n
	}
	var span int64
	if step > 0 {
		start, end = min(max(start, 0), n), min(max(end, 0), n)
		span = end - start
	} else {
		start, end = min(max(start, 0), n-1), min(max(end, -1), n-1)
		span, step = start-end, -max(step, -math.MaxInt64)
	}
	if span <= 0 {
		return start, 0
	}
	return start, (span-1)/step + 1
}
