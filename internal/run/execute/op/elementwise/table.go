// Package elementwise has the operators that compute each element of their output from one element of each
// input: arithmetic, functions, comparisons, logic, casts and codes of activations.
package elementwise

import (
	"math"

	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// Operators are the operators of this package.
var Operators = op.Table{
	"Add": binary{kernels.Add, func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }, nil}.operator(),
	"Sub": binary{kernels.Subtract, func(a, b float64) float64 { return a - b }, func(a, b int64) int64 { return a - b }, nil}.operator(),
	"Mul": binary{kernels.Multiply, func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }, nil}.operator(),
	"Div": binary{kernels.Divide, func(a, b float64) float64 { return a / b }, func(a, b int64) int64 { return a / b }, func(a, b uint64) uint64 { return a / b }}.operator(),
	"Pow": {Inputs: 2, Run: runPow},
	"Min": smallest.fold(nil),
	"Max": largest.fold(nil),

	"Abs":        unary{nil, math.Abs, func(x int64) int64 { return max(x, -x) }}.operator(),
	"Ceil":       unary{nil, math.Ceil, nil}.operator(),
	"Cos":        unary{nil, math.Cos, nil}.operator(),
	"Exp":        unary{kernels.Exp, math.Exp, nil}.operator(),
	"Erf":        unary{kernels.Erf.Apply, math.Erf, nil}.operator(),
	"Floor":      unary{nil, math.Floor, nil}.operator(),
	"Log":        unary{nil, math.Log, nil}.operator(),
	"Neg":        unary{each(func(x float32) float32 { return -x }), func(x float64) float64 { return -x }, func(x int64) int64 { return -x }}.operator(),
	"Reciprocal": unary{each(func(x float32) float32 { return 1 / x }), func(x float64) float64 { return 1 / x }, nil}.operator(),
	"Relu":       unary{relu, func(x float64) float64 { return max(x, 0) }, func(x int64) int64 { return max(x, 0) }}.operator(),
	"Round":      unary{nil, math.RoundToEven, nil}.operator(),
	"Sigmoid":    unary{sigmoid, sigmoid64, nil}.operator(),
	"Sin":        unary{nil, math.Sin, nil}.operator(),
	"Sqrt":       unary{each(func(x float32) float32 { return float32(math.Sqrt(float64(x))) }), math.Sqrt, nil}.operator(),
	"Tanh":       unary{kernels.Tanh.Apply, math.Tanh, nil}.operator(),
	"Not":        unary{nil, nil, func(x int64) int64 { return x ^ 1 }}.operator(),

	"Clip":        with("min max", runClip),
	"Gelu":        with("approximate", gelu),
	"HardSigmoid": with("alpha beta", hardSigmoid),
	"LeakyRelu":   with("alpha", leakyRelu),

	"Equal":          comparison(func(c int) bool { return c == 0 }),
	"Less":           comparison(func(c int) bool { return c < 0 }),
	"LessOrEqual":    comparison(func(c int) bool { return c <= 0 }),
	"Greater":        comparison(func(c int) bool { return c > 0 }),
	"GreaterOrEqual": comparison(func(c int) bool { return c >= 0 }),
	"And":            bitwise(func(a, b int64) int64 { return a & b }),
	"Or":             bitwise(func(a, b int64) int64 { return a | b }),
	"Where":          {Inputs: 3, Run: runWhere},

	"CastLike":              {Inputs: 2, Attributes: "saturate round_mode", Run: runCastLike},
	"BitCast":               {Inputs: 1, Attributes: "to", Run: runBitCast},
	"Cast":                  {Inputs: 1, Attributes: "to saturate round_mode", Run: runCast},
	"QuantizeLinear":        {Inputs: 2, Attributes: "axis block_size output_dtype saturate precision", Run: runQuantizeLinear},
	"DynamicQuantizeLinear": {Inputs: 1, Run: runDynamicQuantizeLinear},
	"DequantizeLinear":      {Inputs: 2, Attributes: "axis block_size output_dtype", Run: runDequantizeLinear},
}

var (
	smallest = binary{nil, math.Min, func(a, b int64) int64 { return min(a, b) }, func(a, b uint64) uint64 { return min(a, b) }}
	largest  = binary{nil, math.Max, func(a, b int64) int64 { return max(a, b) }, func(a, b uint64) uint64 { return max(a, b) }}
)

func bitwise(f func(a, b int64) int64) op.Operator { return binary{whole: f}.operator() }

func hardSigmoid(c *op.Call) (unary, error) {
	alpha, beta := c.Float("alpha", 0.2), c.Float("beta", 0.5)
	return unary{
		single: func(y, x []float32) {
			for i, v := range x {
				y[i] = float32(alpha*v) + beta
			}
			kernels.Clip(y, y, 0, 1)
		},
		double: func(x float64) float64 { return min(max(float64(float64(alpha)*x)+float64(beta), 0), 1) },
	}, nil
}

func leakyRelu(c *op.Call) (unary, error) {
	alpha := c.Float("alpha", 0.01)
	return unary{
		single: each(func(x float32) float32 {
			if x < 0 {
				return alpha * x
			}
			return x
		}),
		double: func(x float64) float64 {
			if x < 0 {
				return float64(alpha) * x
			}
			return x
		},
	}, nil
}

// runPow raises to a power. Its inputs may have different types; the result has the first one's.
func runPow(c *op.Call) ([]*execute.Tensor, error) {
	a, b := c.In[0], c.In[1]
	if a.IsFloat() && b.Len() == 1 && len(b.Dims) <= len(a.Dims) {
		switch b.Float64s()[0] {
		case 2:
			square := unary{each(func(x float32) float32 { return x * x }), func(x float64) float64 { return x * x }, nil}
			return op.One(square.apply(c, a))
		case 0.5:
			root := unary{nil, func(x float64) float64 { return math.Pow(x, 0.5) }, nil}
			return op.One(root.apply(c, a))
		}
	}
	dims, err := op.Broadcast(a.Dims, b.Dims)
	if err != nil {
		return nil, err
	}
	if err := c.Room(a.DType, dims); err != nil {
		return nil, err
	}
	w := op.NewWalk(dims, op.Strides(dims), op.Spread(a.Dims, dims), op.Spread(b.Dims, dims))
	y := make([]float64, op.Product(dims))
	combine(w, y, a.Float64s(), b.Float64s(), math.Pow)
	return op.One(op.Numbers(a.DType, dims, y))
}
