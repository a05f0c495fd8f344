package elementwise

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// unary is a function of numbers, by their types. Those that are nil are not supported.
type unary struct {
	single func(y, x []float32) // nil: by double
	double func(x float64) float64
	whole  func(x int64) int64
}

func (k unary) operator() op.Operator {
	return with("", func(*op.Call) (unary, error) { return k, nil })
}

// with is the operator of a function that depends on attributes or other inputs.
func with(attributes string, function func(*op.Call) (unary, error)) op.Operator {
	return op.Operator{Inputs: 1, Attributes: attributes, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		k, err := function(c)
		if err != nil {
			return nil, err
		}
		return op.One(k.apply(c, c.In[0]))
	}}
}

// curve is with for a function of float64 that depends on attributes.
func curve(attributes string, function func(*op.Call) func(x float64) float64) op.Operator {
	return with(attributes, func(c *op.Call) (unary, error) { return unary{double: function(c)}, nil })
}

func (k unary) apply(c *op.Call, t *execute.Tensor) (*execute.Tensor, error) {
	if engine := c.Arithmetic(); engine != nil && simple[c.Node.GetOpType()] && t.IsFloat() && t.Len() > 0 {
		return engine.Elementwise(c.Node.GetOpType(), t)
	}
	switch {
	case t.IsFloat() && t.DType != dtype.Float64 && (k.single != nil || k.double != nil):
		return c.NewFloats(t.DType, t.Dims, func(y []float32) error {
			x := op.Floats(t)
			if k.single != nil {
				k.single(y, x)
				return nil
			}
			for i, v := range x {
				y[i] = float32(k.double(float64(v)))
			}
			return nil
		})
	case t.DType == dtype.Float64 && k.double != nil:
		y := make([]float64, t.Len())
		for i, v := range op.Doubles(t) {
			y[i] = k.double(v)
		}
		return execute.FromFloat64s(t.DType, t.Dims, y)
	case !t.IsFloat() && k.whole != nil && t.DType != dtype.String:
		y := t.Int64s()
		for i, v := range y {
			y[i] = k.whole(v)
		}
		return execute.FromInt64s(t.DType, t.Dims, y)
	}
	return nil, op.BadType(t)
}

// each makes a loop of a function of float32.
func each(f func(x float32) float32) func(y, x []float32) {
	return func(y, x []float32) {
		y = y[:len(x)]
		for i, v := range x {
			y[i] = f(v)
		}
	}
}

func relu(y, x []float32) { kernels.Clip(y, x, 0, float32(math.Inf(1))) }

// sigmoid is 1/(1 + exp(-x)).
func sigmoid(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] = -v
	}
	kernels.Exp(y, y)
	for i, v := range y {
		y[i] = 1 / (1 + v)
	}
}

func sigmoid64(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// clip limits numbers to a range.
func clip(lo, hi float64) unary {
	least, most := float32(lo), float32(hi)
	return unary{
		single: func(y, x []float32) { kernels.Clip(y, x, least, most) },
		double: func(x float64) float64 { return min(max(x, lo), hi) },
	}
}

func runClip(c *op.Call) (unary, error) {
	lo, hi := math.Inf(-1), math.Inf(1)
	if a := c.Attribute("min"); a != nil {
		lo = float64(a.GetF())
	}
	if a := c.Attribute("max"); a != nil {
		hi = float64(a.GetF())
	}
	var err error
	if lo, err = c.Scalar(1, lo); err != nil {
		return unary{}, err
	}
	if hi, err = c.Scalar(2, hi); err != nil {
		return unary{}, err
	}
	k := clip(lo, hi)
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if t := c.Input(1); t != nil && !t.IsFloat() {
		least = t.Int64s()[0]
	}
	if t := c.Input(2); t != nil && !t.IsFloat() {
		most = t.Int64s()[0]
	}
	k.whole = func(x int64) int64 { return min(max(x, least), most) }
	return k, nil
}

// gelu is x·Φ(x), or its approximation by tanh.
func gelu(c *op.Call) (unary, error) {
	return Gelu(c.Text("approximate", "none") == "tanh"), nil
}

// Gelu returns the function.
func Gelu(approximate bool) unary {
	if approximate {
		inner := func(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + float64(0.044715*x*x*x)) }
		return unary{
			single: func(y, x []float32) {
				for i, v := range x {
					y[i] = 0.7978845608 * (v + float32(0.044715*v*v*v))
				}
				kernels.Tanh.Apply(y, y)
				half(y, x)
			},
			double: func(x float64) float64 { return 0.5 * x * (1 + math.Tanh(inner(x))) },
		}
	}
	return unary{
		single: func(y, x []float32) {
			for i, v := range x {
				y[i] = v * (1 / math.Sqrt2)
			}
			kernels.Erf.Apply(y, y)
			half(y, x)
		},
		double: func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) },
	}
}

// half sets y to x/2·(1 + y).
func half(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] = 0.5 * v * (1 + y[i])
	}
}
