package gradient

import (
	"math"

	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// slope returns the derivative of a function at x, where it is y.
type slope func(x, y float64) float64

// each is the rule of a function of single numbers.
func each(of slope) rule { return eachOf(func(*node) slope { return of }) }

// eachOf is each for a function that depends on attributes.
func eachOf(of func(*node) slope) rule {
	return func(n *node) error {
		f, x, y, dy := of(n), n.x(0), n.y(0), n.dy[0]
		for i := range n.room(0) {
			n.dx[0][i] = dy[i] * float32(f(float64(x[i]), float64(y[i])))
		}
		return nil
	}
}

// where passes the gradient on where a function of x and y holds.
func where(pass func(x, y float32) bool) rule {
	return func(n *node) error {
		x, y := n.x(0), n.y(0)
		for i := range n.room(0) {
			if pass(x[i], y[i]) {
				n.dx[0][i] = n.dy[0][i]
			}
		}
		return nil
	}
}

// pair is the rule of a function of two numbers, whose tensors are broadcast.
func pair(slopes func(a, b, y float32) (da, db float32)) rule {
	return func(n *node) error {
		dims := n.out[0].Dims
		a, b, y, dy := n.x(0), n.x(1), n.y(0), n.dy[0]
		da, db := n.room(0), n.room(1)
		w := op.NewWalk(dims, op.Strides(dims), op.Spread(n.In[0].Dims, dims), op.Spread(n.In[1].Dims, dims))
		s, sa, sb := w.Step(0), w.Step(1), w.Step(2)
		w.Runs(func(at []int, count int) {
			i, j, k := at[0], at[1], at[2]
			for range count {
				ga, gb := slopes(a[j], b[k], y[i])
				if da != nil {
					da[j] += dy[i] * ga
				}
				if db != nil {
					db[k] += dy[i] * gb
				}
				i, j, k = i+s, j+sa, k+sb
			}
		})
		return nil
	}
}

// sum is the rule of an operator that adds tensors with factors.
func sum(factor func(n *node, i int) float32) rule {
	return func(n *node) error {
		for i, t := range n.In {
			if !n.wanted(i) {
				continue
			}
			g := reduce(n.dy[0], n.out[0].Dims, t.Dims)
			if f := factor(n, i); f != 1 {
				scaled := make([]float32, len(g))
				for k, v := range g {
					scaled[k] = f * v
				}
				g = scaled
			}
			n.dx[i] = g
		}
		return nil
	}
}

func one(*node, int) float32 { return 1 }

// multiply is the rule of Mul.
func multiply(n *node) error {
	dims := n.out[0].Dims
	for i := range 2 {
		if !n.wanted(i) {
			continue
		}
		other := expand(n.x(1-i), n.In[1-i].Dims, dims)
		g := make([]float32, len(n.dy[0]))
		kernels.Multiply(g, n.dy[0], other)
		n.dx[i] = reduce(g, dims, n.In[i].Dims)
	}
	return nil
}

// extreme is the rule of Max and Min: the gradient goes to the first input that has the result.
func extreme(n *node) error {
	dims := n.out[0].Dims
	left := append([]float32(nil), n.dy[0]...)
	for i, t := range n.In {
		x, g := expand(n.x(i), t.Dims, dims), make([]float32, len(left))
		for k, v := range n.y(0) {
			if x[k] == v {
				g[k], left[k] = left[k], 0
			}
		}
		if n.wanted(i) {
			n.dx[i] = reduce(g, dims, t.Dims)
		}
	}
	return nil
}

// choose is the rule of Where.
func choose(n *node) error {
	dims := n.out[0].Dims
	cond := make([]float32, n.In[0].Len())
	for i, b := range n.In[0].Data {
		if b != 0 {
			cond[i] = 1
		}
	}
	cond = expand(cond, n.In[0].Dims, dims)
	for i := 1; i <= 2; i++ {
		if !n.wanted(i) {
			continue
		}
		g := make([]float32, len(n.dy[0]))
		for k, v := range n.dy[0] {
			if (cond[k] != 0) == (i == 1) {
				g[k] = v
			}
		}
		n.dx[i] = reduce(g, dims, n.In[i].Dims)
	}
	return nil
}

// clip is the rule of Clip, whose limits are inputs or attributes.
func clip(n *node) error {
	least, err := n.Scalar(1, float64(n.Float("min", float32(math.Inf(-1)))))
	if err != nil {
		return err
	}
	most, err := n.Scalar(2, float64(n.Float("max", float32(math.Inf(1)))))
	if err != nil {
		return err
	}
	return where(func(x, _ float32) bool { return float64(x) >= least && float64(x) <= most })(n)
}

// power is the rule of Pow, for its base.
func power(n *node) error {
	if n.wanted(1) {
		return op.Unsupported("the gradient of an exponent")
	}
	e := *n.In[1]
	if !e.IsFloat() {
		t, err := execute.FromFloat64s(n.In[0].DType, e.Dims, e.Float64s())
		if err != nil {
			return err
		}
		n.In[1] = t
	}
	return pair(func(a, b, _ float32) (float32, float32) {
		if b == 2 {
			return 2 * a, 0
		}
		return b * float32(math.Pow(float64(a), float64(b)-1)), 0
	})(n)
}

// erf is the rule of Erf.
func erf(n *node) error {
	g, x := n.room(0), n.x(0)
	if g == nil {
		return nil
	}
	bell(g, x, -1)
	for i, v := range g {
		g[i] = n.dy[0][i] * v * (2 / math.SqrtPi)
	}
	return nil
}

// bell sets y to exp(factor·x²).
func bell(y, x []float32, factor float32) {
	for i, v := range x {
		y[i] = max(factor*v*v, -80)
	}
	kernels.Exp(y, y)
}

// gelu adds the slope of GELU at x, plain or by tanh.
func geluSlope(x []float32, byTanh bool) []float32 {
	s := make([]float32, len(x))
	if byTanh {
		const a, b = 0.7978845608028654, 0.044715
		for i, v := range x {
			t := math.Tanh(a * float64(v+b*v*v*v))
			s[i] = float32(0.5*(1+t) + 0.5*float64(v)*(1-t*t)*a*(1+3*b*float64(v*v)))
		}
		return s
	}
	bell(s, x, -0.5)
	inner := make([]float32, len(x))
	for i, v := range x {
		inner[i] = v * (1 / math.Sqrt2)
	}
	kernels.Erf.Apply(inner, inner)
	for i, v := range x {
		s[i] = 0.5*(1+inner[i]) + v*s[i]*float32(1/math.Sqrt(2*math.Pi))
	}
	return s
}

// gelu is the rule of Gelu, of which input 1 may be a bias.
func gelu(byTanh func(n *node) bool) rule {
	return func(n *node) error {
		x := n.x(0)
		if bias := n.Input(1); bias != nil {
			x = append([]float32(nil), x...)
			for i, v := range expand(n.x(1), bias.Dims, n.out[0].Dims) {
				x[i] += v
			}
		}
		s := geluSlope(x, byTanh(n))
		kernels.Multiply(s, s, n.dy[0])
		for i := range n.In {
			if n.wanted(i) {
				n.dx[i] = reduce(s, n.out[0].Dims, n.In[i].Dims)
			}
		}
		return nil
	}
}

// parametric is the rule of PRelu, whose slope is broadcast to x.
func parametric(n *node) error {
	return pair(func(x, slope, _ float32) (float32, float32) {
		if x < 0 {
			return slope, x
		}
		return 1, 0
	})(n)
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// The constants of Selu.
const (
	seluAlpha = 1.67326319217681884765625
	seluGamma = 1.05070102214813232421875
)

func hardSigmoid(n *node) slope {
	alpha := float64(n.Float("alpha", 0.2))
	return func(_, y float64) float64 {
		if y > 0 && y < 1 {
			return alpha
		}
		return 0
	}
}

// step is 1 for positive numbers.
func step(x float64) float64 {
	if x > 0 {
		return 1
	}
	return 0
}
