package elementwise

import (
	"math"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func runCast(c *op.Call) ([]*execute.Tensor, error) {
	return op.One(cast(c, dtype.DType(c.Int("to", 0))))
}

func runCastLike(c *op.Call) ([]*execute.Tensor, error) { return op.One(cast(c, c.In[1].DType)) }

// cast converts input 0. Integers that do not fit wrap around.
func cast(c *op.Call, to dtype.DType) (*execute.Tensor, error) {
	t := c.In[0]
	if err := c.Room(to, t.Dims); err != nil {
		return nil, err
	}
	integer := func(typ dtype.DType) bool { return typ.Integer() || typ == dtype.Bool }
	switch {
	case to == t.DType:
		return t, nil
	case t.DType == dtype.Float32 && to == dtype.Float16, t.DType == dtype.Float16 && to == dtype.Float32:
		return execute.FromFloat32s(to, t.Dims, op.Floats(t))
	case integer(t.DType) && integer(to):
		x := t.Int64s()
		if to == dtype.Bool {
			for i, v := range x {
				if v != 0 {
					x[i] = 1
				}
			}
		}
		return execute.FromInt64s(to, t.Dims, wrapped(to, x))
	}
	x, err := asDoubles(t)
	if err != nil {
		return nil, err
	}
	return fromDoubles(c, to, t.Dims, x)
}

// asDoubles returns elements of any type.
func asDoubles(t *execute.Tensor) ([]float64, error) {
	if x, ok := op.DecodeSmall(t.DType, t.Data); ok {
		return x, nil
	}
	switch {
	case t.DType == dtype.String:
		x := make([]float64, len(t.Text))
		for i, text := range t.Text {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil && !math.IsInf(v, 0) {
				return nil, err
			}
			x[i] = v
		}
		return x, nil
	case t.IsFloat() || t.DType.Integer() || t.DType == dtype.Bool:
		return t.Float64s(), nil
	}
	return nil, op.BadType(t)
}

func fromDoubles(c *op.Call, to dtype.DType, dims []int64, x []float64) (*execute.Tensor, error) {
	if codes, ok := op.EncodeSmall(to, x, c.Int("saturate", 1) != 0, c.Text("round_mode", "up")); ok {
		return &execute.Tensor{DType: to, Dims: dims, Data: codes}, nil
	}
	switch {
	case to.Float():
		return execute.FromFloat64s(to, dims, x)
	case to == dtype.String:
		out := &execute.Tensor{DType: to, Dims: dims, Text: make([]string, len(x))}
		for i, v := range x {
			out.Text[i] = formatted(v, c.In[0].IsFloat())
		}
		return out, nil
	case to.Integer() || to == dtype.Bool:
		y := make([]int64, len(x))
		for i, v := range x {
			switch {
			case to == dtype.Bool:
				if v != 0 {
					y[i] = 1
				}
			case to == dtype.Uint64 && v >= 1<<63:
				y[i] = int64(uint64(v))
			default:
				y[i] = int64(v)
			}
		}
		return execute.FromInt64s(to, dims, wrapped(to, y))
	}
	return nil, op.Unsupported("cast to %v", to)
}

// wrapped wraps numbers around that do not fit into an integer type of less than 8 bits.
func wrapped(to dtype.DType, x []int64) []int64 {
	bits := to.Bits()
	if bits >= 8 {
		return x
	}
	for i, v := range x {
		v &= 1<<bits - 1
		if to.Signed() && v >= 1<<(bits-1) {
			v -= 1 << bits
		}
		x[i] = v
	}
	return x
}

// formatted writes a number as numpy does.
func formatted(x float64, float bool) string {
	switch {
	case !float:
		return strconv.FormatInt(int64(x), 10)
	case x != x:
		return "NaN"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 32), "+")[:map[bool]int{true: 4, false: 3}[x < 0]]
	}
	return strconv.FormatFloat(x, 'g', -1, 32)
}

// runBitCast sees the bits of elements as another type, of the same size.
func runBitCast(c *op.Call) ([]*execute.Tensor, error) {
	t, to := c.In[0], dtype.DType(c.Int("to", 0))
	if t.DType == dtype.String || to.Bits() != t.DType.Bits() || to.Bits() < 8 {
		return nil, op.Unsupported("bits of %v as %v", t.DType, to)
	}
	return op.One(&execute.Tensor{DType: to, Dims: t.Dims, Data: t.Data}, nil)
}
