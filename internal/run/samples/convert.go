package samples

import (
	"fmt"
	"math"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// convertible reports whether arrays of one type may be given to an input of another: NumPy makes
// float64 and int64 where models take float32 and int32. Integers do not become floats, because pixels
// would lack a scale.
func convertible(from, to dtype.DType) bool {
	return from == to || from.Float() && to.Float() || from.Integer() && to.Integer()
}

// converted returns a tensor with elements of another type: floats are rounded, integers must fit.
func converted(t *execute.Tensor, to dtype.DType) (*execute.Tensor, error) {
	var (
		c   *execute.Tensor
		err error
	)
	switch {
	case t.DType == to:
		return t, nil
	case t.IsFloat():
		x := t.Float64s()
		if c, err = execute.FromFloat64s(to, t.Dims, x); err == nil {
			if v, ok := tooLarge(x, c, t.Name); ok {
				return nil, fmt.Errorf("%g does not fit %v, the type of input %q", v, to, t.Name)
			}
		}
	default:
		x := t.Int64s()
		if v, ok := outOfRange(x, t.DType, to); ok {
			return nil, fmt.Errorf("%d does not fit %v, the type of input %q", v, to, t.Name)
		}
		c, err = execute.FromInt64s(to, t.Dims, x)
	}
	if err == nil {
		c.Name = t.Name
	}
	return c, err
}

// tooLarge finds a finite number that became infinite. The least number of a mask may: it means minus infinity.
func tooLarge(x []float64, rounded *execute.Tensor, name string) (v float64, ok bool) {
	mask := isMask(name)
	for i, y := range rounded.Float64s() {
		if math.IsInf(y, 0) && !math.IsInf(x[i], 0) && !(mask && y < 0) {
			return x[i], true
		}
	}
	return 0, false
}

// isMask reports whether an input is an additive mask, in which minus infinity is no mistake.
func isMask(name string) bool { return containsAny(strings.ToLower(name), "mask", "bias") }

// outOfRange finds an integer that another type does not have.
func outOfRange(x []int64, from, to dtype.DType) (v any, ok bool) {
	lo, hi := to.Limits()
	for _, v := range x {
		switch {
		case from == dtype.Uint64 && uint64(v) > hi:
			return uint64(v), true
		case from != dtype.Uint64 && (v < lo || v > 0 && uint64(v) > hi):
			return v, true
		}
	}
	return nil, false
}
