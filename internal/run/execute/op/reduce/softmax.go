package reduce

import (
	"math"

	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// alongAxis applies f to the rows along one axis; before opset 13 along that axis and all after it.
func alongAxis(c *op.Call, f func(y, x []float32)) ([]*execute.Tensor, error) {
	t := c.In[0]
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	first := int64(-1)
	if c.Opset < 13 {
		first = 1
	}
	a, err := op.Axis(c.Int("axis", first), len(t.Dims))
	if err != nil {
		return nil, err
	}
	n := int(t.Dims[a])
	if c.Opset < 13 {
		n = int(op.Product(t.Dims[a:]))
	}
	turn := c.Opset >= 13 && a < len(t.Dims)-1
	if turn {
		if t, err = c.ToLast(t, a); err != nil {
			return nil, err
		}
	}
	y, err := Rows(c, t, n, f)
	if err == nil && turn {
		y, err = c.FromLast(y, a)
	}
	return op.One(y, err)
}

// Rows applies f to rows of n elements of a floating-point tensor.
func Rows(c *op.Call, t *execute.Tensor, n int, f func(y, x []float32)) (*execute.Tensor, error) {
	if err := c.Spend(10 * float64(t.Len())); err != nil {
		return nil, err
	}
	return c.NewFloats(t.DType, t.Dims, func(y []float32) error {
		x := op.Floats(t)
		for i := 0; n > 0 && i < len(x); i += n {
			f(y[i:i+n], x[i:i+n])
		}
		return nil
	})
}

// peak is the largest element, or NaN if there is one.
func peak(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if !(v <= m) {
			m = v
		}
	}
	return m
}

// Softmax sets y to the softmax of x.
func Softmax(y, x []float32) {
	m := peak(x)
	for i, v := range x {
		y[i] = v - m
	}
	kernels.Exp(y, y)
	share := float32(1 / total(y))
	for i := range y {
		y[i] *= share
	}
}

func logSoftmax(y, x []float32) {
	m := peak(x)
	for i, v := range x {
		y[i] = v - m
	}
	e := make([]float32, len(x))
	kernels.Exp(e, y)
	log := float32(math.Log(total(e)))
	for i := range y {
		y[i] -= log
	}
}

// hardmax is 1 for the first largest element, 0 for others.
func hardmax(y, x []float32) {
	clear(y)
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	y[at] = 1
}

func runSoftmax(c *op.Call) ([]*execute.Tensor, error)    { return alongAxis(c, Softmax) }
func runLogSoftmax(c *op.Call) ([]*execute.Tensor, error) { return alongAxis(c, logSoftmax) }
func runHardmax(c *op.Call) ([]*execute.Tensor, error)    { return alongAxis(c, hardmax) }
