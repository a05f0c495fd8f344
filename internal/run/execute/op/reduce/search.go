package reduce

import (
	"cmp"
	"fmt"
	"slices"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// arg finds the first element along an axis that is better than all others, or the last one.
func arg(better func(order int) bool) op.Operator {
	return op.Operator{Inputs: 1, Attributes: "axis keepdims select_last_index", Run: func(c *op.Call) ([]*execute.Tensor, error) {
		t := c.In[0]
		a, err := op.Axis(c.Int("axis", 0), len(t.Dims))
		if err != nil {
			return nil, err
		}
		marks := make([]bool, len(t.Dims))
		marks[a] = true
		last := c.Is("select_last_index")
		outer, n, inner := op.Sizes(t.Dims, a)
		x := t.Float64s()
		if n == 0 {
			return nil, fmt.Errorf("axis %d of dims %v is empty", a, t.Dims)
		}
		y := make([]int64, 0, outer*inner)
		for o := range outer {
			for i := range inner {
				best := 0
				for k := 1; k < n; k++ {
					order := cmp.Compare(x[(o*n+k)*inner+i], x[(o*n+best)*inner+i])
					if better(order) || last && order == 0 {
						best = k
					}
				}
				y = append(y, int64(best))
			}
		}
		return op.One(op.Int64(op.Without(t.Dims, marks, c.Int("keepdims", 1) != 0), y), nil)
	}}
}

// runTopK finds the largest or smallest elements along an axis. Of equal ones, the first come first.
func runTopK(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	k, err := c.Whole(1, c.Int("k", 0))
	if err != nil {
		return nil, err
	}
	a, err := op.Axis(c.Int("axis", -1), len(t.Dims))
	if err != nil {
		return nil, err
	}
	if k < 0 || k > t.Dims[a] {
		return nil, fmt.Errorf("k is %d of %d elements", k, t.Dims[a])
	}
	rows, err := c.ToLast(t, a)
	if err != nil {
		return nil, err
	}
	n := int(t.Dims[a])
	if err := c.Spend(20 * float64(t.Len())); err != nil {
		return nil, err
	}
	x, sign := rows.Float64s(), -1
	if c.Int("largest", 1) == 0 {
		sign = 1
	}
	dims := slices.Clone(rows.Dims)
	dims[len(dims)-1] = k
	places, from := make([]int64, 0, op.Product(dims)), make([]int64, 0, op.Product(dims))
	order := make([]int, n)
	for r := 0; n > 0 && r < len(x)/n; r++ {
		row := x[r*n:][:n]
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int { return cmp.Or(sign*cmp.Compare(row[i], row[j]), i-j) })
		for _, i := range order[:k] {
			places, from = append(places, int64(i)), append(from, int64(r*n+i))
		}
	}
	flat, err := op.Reshaped(rows, []int64{int64(rows.Len())})
	if err != nil {
		return nil, err
	}
	values, err := c.Gather(flat, op.Int64(dims, from), 0)
	if err != nil {
		return nil, err
	}
	results := []*execute.Tensor{values, op.Int64(dims, places)}
	for i := range results {
		if results[i], err = c.FromLast(results[i], a); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// cumulative combines each element along an axis with those before it.
func cumulative(f func(a, b float64) float64, whole func(a, b int64) int64, start float64) op.Operator {
	return op.Operator{Inputs: 2, Attributes: "exclusive reverse", Run: func(c *op.Call) ([]*execute.Tensor, error) {
		t := c.In[0]
		axis, err := c.Whole(1, 0)
		if err != nil {
			return nil, err
		}
		a, err := op.Axis(axis, len(t.Dims))
		if err != nil {
			return nil, err
		}
		_, n, inner := op.Sizes(t.Dims, a)
		if !t.IsFloat() {
			y := t.Int64s()
			accumulate(y, n, inner, int64(start), whole, c.Is("exclusive"), c.Is("reverse"))
			return op.One(execute.FromInt64s(t.DType, t.Dims, y))
		}
		y := t.Float64s()
		accumulate(y, n, inner, start, f, c.Is("exclusive"), c.Is("reverse"))
		return op.One(execute.FromFloat64s(t.DType, t.Dims, y))
	}}
}

func accumulate[T any](y []T, n, inner int, start T, f func(a, b T) T, exclusive, reverse bool) {
	if n == 0 {
		return
	}
	for line := range len(y) / n {
		sum := start
		for k := range n {
			if reverse {
				k = n - 1 - k
			}
			at := (line/inner*n+k)*inner + line%inner
			next := f(sum, y[at])
			if exclusive {
				y[at] = sum
			} else {
				y[at] = next
			}
			sum = next
		}
	}
}

// nll is the weighted negative of the scores of labels.
func nll(c *op.Call, scores, labels, weights *execute.Tensor) (*execute.Tensor, error) {
	if len(scores.Dims) < 2 || scores.Len() == 0 || !scores.IsFloat() || !slices.Equal(labels.Dims, slices.Delete(slices.Clone(scores.Dims), 1, 2)) {
		return nil, fmt.Errorf("scores with dims %v of type %v, labels with dims %v", scores.Dims, scores.DType, labels.Dims)
	}
	classes, inner := int(scores.Dims[1]), int(op.Product(scores.Dims[2:]))
	if weights != nil && weights.Len() != classes {
		return nil, fmt.Errorf("%d weights for %d classes", weights.Len(), classes)
	}
	weight := slices.Repeat([]float64{1}, classes)
	if weights != nil {
		weight = weights.Float64s()
	}
	ignored, ignores := c.Int("ignore_index", 0), c.Attribute("ignore_index") != nil
	x, loss := scores.Float64s(), make([]float64, labels.Len())
	sum, all := 0.0, 0.0
	for i, label := range labels.Int64s() {
		if ignores && label == ignored {
			continue
		}
		if label < 0 || label >= int64(classes) {
			return nil, fmt.Errorf("label %d of %d classes", label, classes)
		}
		loss[i] = -weight[label] * x[(i/inner*classes+int(label))*inner+i%inner]
		sum, all = sum+loss[i], all+weight[label]
	}
	switch c.Text("reduction", "mean") {
	case "none":
		return execute.FromFloat64s(scores.DType, labels.Dims, loss)
	case "mean":
		sum /= all
	}
	return execute.FromFloat64s(scores.DType, nil, []float64{sum})
}

func runNLL(c *op.Call) ([]*execute.Tensor, error) {
	return op.One(nll(c, c.In[0], c.In[1], c.Input(2)))
}

// runCrossEntropy also returns the logarithms of the softmax.
func runCrossEntropy(c *op.Call) ([]*execute.Tensor, error) {
	if len(c.In[0].Dims) < 2 {
		return nil, fmt.Errorf("scores with dims %v", c.In[0].Dims)
	}
	t, err := c.ToLast(c.In[0], 1)
	if err != nil {
		return nil, err
	}
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	logs, err := Rows(c, t, int(c.In[0].Dims[1]), logSoftmax)
	if err != nil {
		return nil, err
	}
	if logs, err = c.FromLast(logs, 1); err != nil {
		return nil, err
	}
	loss, err := nll(c, logs, c.In[1], c.Input(2))
	return []*execute.Tensor{loss, logs}, err
}

// more are operators that few models have.
var more = op.Table{
	"ArgMax":  arg(func(order int) bool { return order > 0 }),
	"ArgMin":  arg(func(order int) bool { return order < 0 }),
	"TopK":    {Inputs: 1, Attributes: "axis k largest sorted", Run: runTopK},
	"CumSum":  cumulative(func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }, 0),
	"CumProd": cumulative(func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }, 1),

	"NegativeLogLikelihoodLoss": {Inputs: 2, Attributes: "ignore_index reduction", Run: runNLL},
	"SoftmaxCrossEntropyLoss":   {Inputs: 2, Attributes: "ignore_index reduction", Run: runCrossEntropy},
}

func init() {
	for name, operator := range more {
		Operators[name] = operator
	}
}
