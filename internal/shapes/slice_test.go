package shapes_test

import (
	"math"
	"testing"

	"onnxquant/internal/shapes"
)

// What ONNX Runtime 1.31 takes of five elements.
func TestSlice(t *testing.T) {
	for _, c := range []struct{ start, end, step, first, count int64 }{
		{0, 5, 1, 0, 5},
		{1, -1, 1, 1, 3},
		{-2, 1000, 1, 3, 2},
		{1, 5, 2, 1, 2},
		{3, 3, 1, 3, 0},
		{4, 1, 1, 4, 0},
		{-1, -1000, -1, 4, 5},
		{1000, 0, -3, 4, 2},
		{-1, math.MinInt64, -1, 4, 5},
		{1, 3, -1, 1, 0},
		{-100, -1000, -1, 0, 1},
		{0, 100, math.MaxInt64, 0, 1},
		{1, 3, 1 << 62, 1, 1},
		{4, -1000, math.MinInt64, 4, 1},
		{3, 0, -1 << 62, 3, 1},
	} {
		if first, count := shapes.Slice(c.start, c.end, c.step, 5); first != c.first || count != c.count {
			t.Errorf("%d:%d:%d takes %d elements from %d on, want %d from %d on", c.start, c.end, c.step, count, first, c.count, c.first)
		}
	}
	if _, count := shapes.Slice(0, 10, 1, 0); count != 0 {
		t.Errorf("%d of no elements", count)
	}
	if _, count := shapes.Slice(-1, -10, -1, 0); count != 0 {
		t.Errorf("%d of no elements, backwards", count)
	}
}
