// Package reduce has the operators that combine the elements along axes: sums and extremes, softmax,
// normalizations, losses, orders.
package reduce

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// reducer combines numbers, by their types. Those that are nil are not supported.
type reducer struct {
	single func(x []float32) float32
	double func(x []float64) float64
	whole  func(x []int64) int64
}

const reduceAttributes = "axes keepdims noop_with_empty_axes"

func (r reducer) operator() op.Operator {
	return op.Operator{Inputs: 1, Attributes: reduceAttributes, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		list := c.List(1, "axes")
		if len(list) == 0 && c.Is("noop_with_empty_axes") {
			// Each element is reduced by itself.
			return op.One(r.apply(c, c.In[0], make([]bool, len(c.In[0].Dims)), true))
		}
		marks, err := op.Axes(list, len(c.In[0].Dims))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			marks = slices.Repeat([]bool{true}, len(c.In[0].Dims))
		}
		return op.One(r.apply(c, c.In[0], marks, c.Int("keepdims", 1) != 0))
	}}
}

// apply reduces the marked axes of t.
func (r reducer) apply(c *op.Call, t *execute.Tensor, marks []bool, keep bool) (*execute.Tensor, error) {
	var kept, gone []int
	n := 1
	for i, reduce := range marks {
		if reduce {
			gone = append(gone, i)
			n *= int(t.Dims[i])
		} else {
			kept = append(kept, i)
		}
	}
	dims := op.Without(t.Dims, marks, keep)
	if err := c.Spend(float64(t.Len())); err != nil {
		return nil, err
	}
	if err := c.Room(t.DType, t.Dims); err != nil {
		return nil, err
	}
	t, err := c.Transpose(t, append(kept, gone...))
	if err != nil {
		return nil, err
	}
	switch {
	case t.IsFloat() && t.DType != dtype.Float64 && r.single != nil:
		return c.NewFloats(t.DType, dims, func(y []float32) error {
			rows(y, op.Floats(t), n, r.single)
			return nil
		})
	case t.IsFloat() && r.double != nil:
		y := make([]float64, op.Product(dims))
		rows(y, op.Doubles(t), n, r.double)
		return execute.FromFloat64s(t.DType, dims, y)
	case !t.IsFloat() && r.whole != nil && t.DType != dtype.String:
		y := make([]int64, op.Product(dims))
		rows(y, t.Int64s(), n, r.whole)
		return execute.FromInt64s(t.DType, dims, y)
	}
	return nil, op.BadType(t)
}

func rows[T any](y, x []T, n int, f func([]T) T) {
	for i := range y {
		y[i] = f(x[i*n : (i+1)*n])
	}
}

// total adds up in float64, in four parts.
func total(x []float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return a + b + (c + d)
}

// totalSquares adds up the squares of differences from a center.
func totalSquares(x []float32, center float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		p, q, r, s := float64(x[0]-center), float64(x[1]-center), float64(x[2]-center), float64(x[3]-center)
		a += p * p
		b += q * q
		c += r * r
		d += s * s
	}
	for _, v := range x {
		p := float64(v - center)
		a += p * p
	}
	return a + b + (c + d)
}

func sum(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

func sumOf(f func(x float64) float64) func(x []float64) float64 {
	return func(x []float64) float64 {
		s := 0.0
		for _, v := range x {
			s += f(v)
		}
		return s
	}
}

func sumWhole(f func(x int64) int64) func(x []int64) int64 {
	return func(x []int64) int64 {
		s := int64(0)
		for _, v := range x {
			s += f(v)
		}
		return s
	}
}

// extreme folds by f, from start on.
func extreme[T any](start T, f func(a, b T) T) func(x []T) T {
	return func(x []T) T {
		m := start
		for _, v := range x {
			m = f(m, v)
		}
		return m
	}
}

func square(x float64) float64 { return x * x }

func logSumExp(x []float64) float64 {
	most := extreme(math.Inf(-1), math.Max)(x)
	if math.IsInf(most, 0) {
		return most
	}
	return most + math.Log(sumOf(func(v float64) float64 { return math.Exp(v - most) })(x))
}

// globalPool reduces all spatial axes.
func globalPool(r func(c *op.Call) reducer, attributes string) op.Operator {
	return op.Operator{Inputs: 1, Attributes: attributes, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		rank := len(c.In[0].Dims)
		if rank < 3 {
			return nil, fmt.Errorf("it has %d dimensions, want at least 3", rank)
		}
		marks := slices.Repeat([]bool{true}, rank)
		marks[0], marks[1] = false, false
		return op.One(r(c).apply(c, c.In[0], marks, true))
	}}
}

var (
	sums = reducer{
		func(x []float32) float32 { return float32(total(x)) }, sum, sumWhole(func(x int64) int64 { return x }),
	}
	means = reducer{
		func(x []float32) float32 { return float32(total(x) / float64(len(x))) },
		func(x []float64) float64 { return sum(x) / float64(len(x)) },
		func(x []int64) int64 { return sumWhole(func(x int64) int64 { return x })(x) / int64(max(len(x), 1)) },
	}
	most = reducer{
		extreme(float32(math.Inf(-1)), func(a, b float32) float32 { return max(a, b) }), extreme(math.Inf(-1), math.Max),
		extreme(math.MinInt64, func(a, b int64) int64 { return max(a, b) }),
	}
	least = reducer{
		extreme(float32(math.Inf(1)), func(a, b float32) float32 { return min(a, b) }), extreme(math.Inf(1), math.Min),
		extreme(math.MaxInt64, func(a, b int64) int64 { return min(a, b) }),
	}
)

func lpNorm(c *op.Call) reducer {
	p := float64(c.Int("p", 2))
	return reducer{double: func(x []float64) float64 {
		return math.Pow(sumOf(func(v float64) float64 { return math.Pow(math.Abs(v), p) })(x), 1/p)
	}}
}

// Operators are the operators of this package.
var Operators = op.Table{
	"ReduceSum":  sums.operator(),
	"ReduceMean": means.operator(),
	"ReduceMax":  most.operator(),
	"ReduceMin":  least.operator(),
	"ReduceProd": reducer{
		nil, extreme(1, func(a, b float64) float64 { return a * b }), extreme(1, func(a, b int64) int64 { return a * b }),
	}.operator(),
	"ReduceL1":        reducer{nil, sumOf(math.Abs), sumWhole(func(x int64) int64 { return max(x, -x) })}.operator(),
	"ReduceL2":        reducer{nil, func(x []float64) float64 { return math.Sqrt(sumOf(square)(x)) }, nil}.operator(),
	"ReduceSumSquare": reducer{nil, sumOf(square), sumWhole(func(x int64) int64 { return x * x })}.operator(),
	"ReduceLogSum":    reducer{nil, func(x []float64) float64 { return math.Log(sum(x)) }, nil}.operator(),

	"ReduceLogSumExp":   reducer{nil, logSumExp, nil}.operator(),
	"GlobalAveragePool": globalPool(func(*op.Call) reducer { return means }, ""),
	"GlobalMaxPool":     globalPool(func(*op.Call) reducer { return most }, ""),
	"GlobalLpPool":      globalPool(lpNorm, "p"),

	"Softmax":    {Inputs: 1, Attributes: "axis", Run: runSoftmax},
	"LogSoftmax": {Inputs: 1, Attributes: "axis", Run: runLogSoftmax},
	"Hardmax":    {Inputs: 1, Attributes: "axis", Run: runHardmax},

	"LayerNormalization":        {Inputs: 2, Attributes: "axis epsilon stash_type", Run: runLayerNormalization},
	"RMSNormalization":          {Inputs: 2, Attributes: "axis epsilon stash_type", Run: runRMSNormalization},
	"BatchNormalization":        {Inputs: 5, Attributes: "epsilon momentum spatial training_mode", Run: runBatchNormalization},
	"InstanceNormalization":     {Inputs: 3, Attributes: "epsilon", Run: runInstanceNormalization},
	"GroupNormalization":        {Inputs: 3, Attributes: "epsilon num_groups stash_type", Run: runGroupNormalization},
	"LpNormalization":           {Inputs: 1, Attributes: "axis p", Run: runLpNormalization},
	"MeanVarianceNormalization": {Inputs: 1, Attributes: "axes", Run: runMeanVariance},
	"LRN":                       {Inputs: 1, Attributes: "alpha beta bias size", Run: runLRN},
}
