package elementwise

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func double(f func(x float64) float64) op.Operator { return unary{double: f}.operator() }

// parameters gives a function two attributes, with what they are unset.
func parameters(first string, a float32, second string, b float32, f func(x, a, b float64) float64) op.Operator {
	return curve(first+" "+second, func(c *op.Call) func(float64) float64 {
		p, q := float64(c.Float(first, a)), float64(c.Float(second, b))
		return func(x float64) float64 { return f(x, p, q) }
	})
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func elu(x, alpha, _ float64) float64 {
	if x < 0 {
		return alpha * math.Expm1(x)
	}
	return x
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// more are functions that few models have.
var more = op.Table{
	"Acos": double(math.Acos), "Acosh": double(math.Acosh), "Asin": double(math.Asin), "Asinh": double(math.Asinh),
	"Atan": double(math.Atan), "Atanh": double(math.Atanh), "Cosh": double(math.Cosh), "Sinh": double(math.Sinh), "Tan": double(math.Tan),

	"HardSwish": double(func(x float64) float64 { return x * min(max(x/6+0.5, 0), 1) }),
	"Mish":      double(func(x float64) float64 { return x * math.Tanh(softplus(x)) }),
	"Softplus":  double(softplus),
	"Softsign":  double(func(x float64) float64 { return x / (1 + math.Abs(x)) }),
	"Sign": unary{nil, sign, func(x int64) int64 {
		return int64(sign(float64(x)))
	}}.operator(),

	"Celu":  parameters("alpha", 1, "", 0, func(x, alpha, _ float64) float64 { return max(x, 0) + min(0, alpha*math.Expm1(x/alpha)) }),
	"Elu":   parameters("alpha", 1, "", 0, elu),
	"Selu":  parameters("alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875, func(x, alpha, gamma float64) float64 { return gamma * elu(x, alpha, 0) }),
	"Swish": parameters("alpha", 1, "", 0, func(x, alpha, _ float64) float64 { return x * sigmoid64(alpha*x) }),
	"ThresholdedRelu": parameters("alpha", 1, "", 0, func(x, alpha, _ float64) float64 {
		if x > alpha {
			return x
		}
		return 0
	}),
	"Shrink": {Inputs: 1, Attributes: "lambd bias", Run: runShrink},
	"PRelu":  binary{nil, prelu, func(a, b int64) int64 { return int64(prelu(float64(a), float64(b))) }, nil}.operator(),

	"Mod":        {Inputs: 2, Attributes: "fmod", Run: runMod},
	"Sum":        binary{nil, func(a, b float64) float64 { return a + b }, nil, nil}.fold(nil),
	"Mean":       binary{nil, func(a, b float64) float64 { return a + b }, nil, nil}.fold(divided),
	"Xor":        bitwise(func(a, b int64) int64 { return a ^ b }),
	"BitwiseAnd": bitwise(func(a, b int64) int64 { return a & b }),
	"BitwiseOr":  bitwise(func(a, b int64) int64 { return a | b }),
	"BitwiseXor": bitwise(func(a, b int64) int64 { return a ^ b }),
	"BitwiseNot": unary{whole: func(x int64) int64 { return ^x }}.operator(),
	"BitShift":   {Inputs: 2, Attributes: "direction", Run: runBitShift},

	"IsNaN": {Inputs: 1, Run: test(func(c *op.Call) func(x float64) bool { return math.IsNaN })},
	"IsInf": {Inputs: 1, Attributes: "detect_negative detect_positive", Run: test(func(c *op.Call) func(x float64) bool {
		up, down := c.Int("detect_positive", 1) != 0, c.Int("detect_negative", 1) != 0
		return func(x float64) bool { return up && math.IsInf(x, 1) || down && math.IsInf(x, -1) }
	})},
}

func init() {
	for name, operator := range more {
		Operators[name] = operator
	}
}

// test is an operator that says whether elements have a property.
func test(property func(*op.Call) func(x float64) bool) func(*op.Call) ([]*execute.Tensor, error) {
	return func(c *op.Call) ([]*execute.Tensor, error) {
		x, err := asDoubles(c.In[0])
		if err != nil {
			return nil, err
		}
		holds, y := property(c), make([]uint8, len(x))
		for i, v := range x {
			if holds(v) {
				y[i] = 1
			}
		}
		return op.One(execute.Made(dtype.Bool, c.In[0].Dims, y), nil)
	}
}

func prelu(x, slope float64) float64 {
	if x < 0 {
		return slope * x
	}
	return x
}

func runShrink(c *op.Call) ([]*execute.Tensor, error) {
	limit, bias := float64(c.Float("lambd", 0.5)), float64(c.Float("bias", 0))
	f := func(x float64) float64 {
		switch {
		case x < -limit:
			return x + bias
		case x > limit:
			return x - bias
		}
		return 0
	}
	return op.One(unary{nil, f, func(x int64) int64 { return int64(f(float64(x))) }}.apply(c, c.In[0]))
}

// divided is a sum of n tensors, divided by n.
func divided(c *op.Call, t *execute.Tensor, n int) (*execute.Tensor, error) {
	return unary{double: func(x float64) float64 { return x / float64(n) }}.apply(c, t)
}

// runMod has the sign of the divisor; with fmod, of the dividend.
func runMod(c *op.Call) ([]*execute.Tensor, error) {
	k := binary{
		double: func(a, b float64) float64 {
			m := math.Mod(a, b)
			if m != 0 && (m < 0) != (b < 0) {
				m += b
			}
			return m
		},
		whole: func(a, b int64) int64 {
			m := a % b
			if m != 0 && (m < 0) != (b < 0) {
				m += b
			}
			return m
		},
		unsigned: func(a, b uint64) uint64 { return a % b },
	}
	if c.Is("fmod") {
		k.double, k.whole = math.Mod, func(a, b int64) int64 { return a % b }
	}
	return op.One(k.apply(c, c.In[0], c.In[1]))
}

func runBitShift(c *op.Call) ([]*execute.Tensor, error) {
	size := c.In[0].DType.Bits()
	k := binary{whole: func(a, b int64) int64 { return a >> min(uint64(b), uint64(size)) }, unsigned: func(a, b uint64) uint64 { return a >> b }}
	if c.Text("direction", "") == "LEFT" {
		k.whole = func(a, b int64) int64 { return a << min(uint64(b), uint64(size)) }
		k.unsigned = nil
	}
	return op.One(k.apply(c, c.In[0], c.In[1]))
}
