package shapes_test

import (
	"math"
	"testing"

	"onnxquant/internal/shapes"
)

func TestDivideUp(t *testing.T) {
	for _, c := range [][3]int64{{0, 4, 0}, {1, 4, 1}, {4, 4, 1}, {5, 4, 2}, {64, math.MaxInt64, 1}, {math.MaxInt64, 2, 1 << 62}} {
		if got := shapes.DivideUp(c[0], c[1]); got != c[2] {
			t.Errorf("%d/%d: got %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
