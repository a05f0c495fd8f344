package reduce

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// rowFactors returns a tensor of factors or offsets as rows of n elements, of which row i belongs to row
// i % rows of the values; nil for an absent one.
func rowFactors(c *op.Call, t *execute.Tensor, dims []int64, a int) ([]float32, error) {
	if t == nil {
		return nil, nil
	}
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	n := op.Product(dims[a:])
	if int64(t.Len()) == n {
		return op.Floats(t), nil
	}
	full, err := c.Expand(t, dims)
	if err != nil {
		return nil, err
	}
	return op.Floats(full), nil
}

// Normalization scales rows.
type Normalization struct {
	N           int // elements of a row
	Epsilon     float64
	Center      bool // subtract the mean
	Scale, Bias []float32
}

// Apply normalizes the rows of x. means and deviations, the inverse ones, may be nil.
func (z *Normalization) Apply(y, x, means, deviations []float32) {
	for i := 0; z.N > 0 && i*z.N < len(x); i++ {
		out, row := y[i*z.N:][:z.N], x[i*z.N:][:z.N]
		mean := float32(0)
		if z.Center {
			mean = float32(total(row) / float64(z.N))
		}
		inverse := float32(1 / math.Sqrt(totalSquares(row, mean)/float64(z.N)+z.Epsilon))
		for k, v := range row {
			out[k] = (v - mean) * inverse
		}
		if means != nil {
			means[i], deviations[i] = mean, inverse
		}
		if z.Scale != nil {
			for k, v := range z.Scale[i*z.N%len(z.Scale):][:z.N] {
				out[k] *= v
			}
		}
		if z.Bias != nil {
			for k, v := range z.Bias[i*z.N%len(z.Bias):][:z.N] {
				out[k] += v
			}
		}
	}
}

// normalized is LayerNormalization or RMSNormalization.
func normalized(c *op.Call, center bool) ([]*execute.Tensor, error) {
	t := c.In[0]
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	a, err := op.Axis(c.Int("axis", -1), len(t.Dims))
	if err != nil {
		return nil, err
	}
	z := &Normalization{N: int(op.Product(t.Dims[a:])), Epsilon: float64(c.Float("epsilon", 1e-5)), Center: center}
	if z.Scale, err = rowFactors(c, c.In[1], t.Dims, a); err != nil {
		return nil, err
	}
	if z.Bias, err = rowFactors(c, c.Input(2), t.Dims, a); err != nil {
		return nil, err
	}
	if err := c.Spend(5 * float64(t.Len())); err != nil {
		return nil, err
	}
	rows := t.Len() / max(z.N, 1)
	means, deviations := make([]float32, rows), make([]float32, rows)
	y, err := c.NewFloats(t.DType, t.Dims, func(y []float32) error {
		z.Apply(y, op.Floats(t), means, deviations)
		return nil
	})
	if err != nil || !c.Wants(1) && !c.Wants(2) {
		return op.One(y, err)
	}
	dims := slices.Clone(t.Dims)
	for i := a; i < len(dims); i++ {
		dims[i] = 1
	}
	stash := dtype.DType(c.Int("stash_type", 1))
	mean, err := execute.FromFloat32s(stash, dims, means)
	if err != nil {
		return nil, err
	}
	deviation, err := execute.FromFloat32s(stash, dims, deviations)
	return []*execute.Tensor{y, mean, deviation}, err
}

func runLayerNormalization(c *op.Call) ([]*execute.Tensor, error) { return normalized(c, true) }
func runRMSNormalization(c *op.Call) ([]*execute.Tensor, error)   { return normalized(c, false) }

// perChannel returns numbers of the channels of t.
func perChannel(t, numbers *execute.Tensor) ([]float64, error) {
	if len(t.Dims) < 1 || !numbers.IsFloat() || len(t.Dims) > 1 && int64(numbers.Len()) != t.Dims[1] || len(t.Dims) == 1 && numbers.Len() != 1 {
		return nil, fmt.Errorf("numbers with dims %v for the channels of dims %v", numbers.Dims, t.Dims)
	}
	return numbers.Float64s(), nil
}

// scaleChannels computes x·factor + offset, by channel of each image: factors[i] is that of channel i of all images.
func scaleChannels(c *op.Call, t *execute.Tensor, factors, offsets []float64) (*execute.Tensor, error) {
	if len(factors) == 0 || t.Len() == 0 {
		return c.NewFloats(t.DType, t.Dims, func([]float32) error { return nil })
	}
	size := t.Len() / max(int(t.Dims[0])*len(factors), 1)
	if len(t.Dims) == 1 {
		size = 1
	}
	if t.DType == dtype.Float64 {
		y := t.Float64s()
		for i := range y {
			k := i / size % len(factors)
			y[i] = float64(y[i]*factors[k]) + offsets[k]
		}
		return execute.FromFloat64s(t.DType, t.Dims, y)
	}
	return c.NewFloats(t.DType, t.Dims, func(y []float32) error {
		x := op.Floats(t)
		for i := 0; i*size < len(x); i++ {
			factor, offset := float32(factors[i%len(factors)]), float32(offsets[i%len(factors)])
			out := y[i*size:][:size]
			for k, v := range x[i*size:][:size] {
				out[k] = float32(v*factor) + offset
			}
		}
		return nil
	})
}

func runBatchNormalization(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	training := c.Is("training_mode")
	if c.Int("spatial", 1) != 1 || len(c.Node.Output) > 1 && !training || !t.IsFloat() {
		return nil, op.Unsupported("spatial=0, outputs of training or elements of type %v", t.DType)
	}
	var numbers [4][]float64 // scale, bias, mean, variance
	for i := range numbers {
		var err error
		if numbers[i], err = perChannel(t, c.In[1+i]); err != nil {
			return nil, err
		}
	}
	outputs := make([]*execute.Tensor, 1)
	if training {
		keep := float64(c.Float("momentum", 0.9))
		mean, variance := moments(t)
		for i, now := range [][]float64{mean, variance} {
			running := slices.Clone(numbers[2+i])
			for k, v := range now {
				running[k] = float64(running[k]*keep) + float64(v*(1-keep))
			}
			made, err := execute.FromFloat64s(c.In[3+i].DType, c.In[3+i].Dims, running)
			if err != nil {
				return nil, err
			}
			outputs = append(outputs, made)
		}
		numbers[2], numbers[3] = mean, variance
	}
	epsilon := float64(c.Float("epsilon", 1e-5))
	factors, offsets := make([]float64, len(numbers[0])), make([]float64, len(numbers[0]))
	for i := range factors {
		factors[i] = numbers[0][i] / math.Sqrt(numbers[3][i]+epsilon)
		offsets[i] = numbers[1][i] - float64(numbers[2][i]*factors[i])
	}
	var err error
	outputs[0], err = scaleChannels(c, t, factors, offsets)
	return outputs, err
}

// moments returns the mean and the variance of each channel.
func moments(t *execute.Tensor) (means, variances []float64) {
	n := 1
	if len(t.Dims) > 1 {
		n = int(t.Dims[1])
	}
	size := t.Len() / max(int(t.Dims[0])*n, 1)
	x := t.Float64s()
	means, variances = make([]float64, n), make([]float64, n)
	each := func(sums []float64, f func(v float64, channel int) float64) {
		for i, v := range x {
			sums[i/size%n] += f(v, i/size%n)
		}
		for i := range sums {
			sums[i] *= float64(n) / float64(len(x))
		}
	}
	each(means, func(v float64, _ int) float64 { return v })
	each(variances, func(v float64, channel int) float64 { return square(v - means[channel]) })
	return means, variances
}

// grouped normalizes groups of channels of each image, and scales channels.
func grouped(c *op.Call, groups int64, scaleOf func(c *op.Call, t *execute.Tensor) (*execute.Tensor, error)) ([]*execute.Tensor, error) {
	t := c.In[0]
	if !t.IsFloat() || len(t.Dims) < 2 || groups < 1 || t.Dims[1]%groups != 0 {
		return nil, fmt.Errorf("%d groups for dims %v of type %v", groups, t.Dims, t.DType)
	}
	z := &Normalization{N: int(op.Product(t.Dims[1:]) / groups), Epsilon: float64(c.Float("epsilon", 1e-5)), Center: true}
	if err := c.Spend(5 * float64(t.Len())); err != nil {
		return nil, err
	}
	y, err := c.NewFloats(t.DType, t.Dims, func(y []float32) error {
		z.Apply(y, op.Floats(t), nil, nil)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return op.One(scaleOf(c, y))
}

// scaleByInputs scales the channels of t, or their groups, by inputs 1 and 2.
func scaleByInputs(c *op.Call, t *execute.Tensor) (*execute.Tensor, error) {
	var numbers [2][]float64
	for i := range numbers {
		list := c.In[1+i].Float64s()
		if len(list) == 0 || t.Dims[1]%int64(len(list)) != 0 {
			return nil, fmt.Errorf("numbers with dims %v for the channels of dims %v", c.In[1+i].Dims, t.Dims)
		}
		for k := range t.Dims[1] {
			numbers[i] = append(numbers[i], list[k*int64(len(list))/t.Dims[1]])
		}
	}
	return scaleChannels(c, t, numbers[0], numbers[1])
}

func runInstanceNormalization(c *op.Call) ([]*execute.Tensor, error) {
	if len(c.In[0].Dims) < 2 {
		return nil, fmt.Errorf("dims %v have no channels", c.In[0].Dims)
	}
	return grouped(c, c.In[0].Dims[1], scaleByInputs)
}

func runGroupNormalization(c *op.Call) ([]*execute.Tensor, error) {
	return grouped(c, c.Int("num_groups", 0), scaleByInputs)
}

// runLpNormalization divides rows by their p-norms.
func runLpNormalization(c *op.Call) ([]*execute.Tensor, error) {
	p := c.Int("p", 2)
	if p != 1 && p != 2 {
		return nil, op.Unsupported("p=%d", p)
	}
	t := c.In[0]
	a, err := op.Axis(c.Int("axis", -1), len(t.Dims))
	if err != nil {
		return nil, err
	}
	if t, err = c.ToLast(t, a); err != nil {
		return nil, err
	}
	y, err := Rows(c, t, int(c.In[0].Dims[a]), func(y, x []float32) {
		norm := 0.0
		for _, v := range x {
			norm += math.Pow(math.Abs(float64(v)), float64(p))
		}
		norm = math.Pow(norm, 1/float64(p))
		for i, v := range x {
			if y[i] = 0; norm > 0 {
				y[i] = float32(float64(v) / norm)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return op.One(c.FromLast(y, a))
}

// runMeanVariance subtracts the mean over axes and divides by the standard deviation.
func runMeanVariance(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	marks, err := op.Axes(c.Ints("axes", []int64{0, 2, 3}), len(t.Dims))
	if err != nil {
		return nil, err
	}
	var kept, gone []int
	n := 1
	for i, reduce := range marks {
		if reduce {
			gone, n = append(gone, i), n*int(t.Dims[i])
		} else {
			kept = append(kept, i)
		}
	}
	perm := append(kept, gone...)
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	if t, err = c.Transpose(t, perm); err != nil {
		return nil, err
	}
	y, err := Rows(c, t, n, func(y, x []float32) {
		mean := total(x) / float64(n)
		deviation := math.Sqrt(totalSquares(x, float32(mean))/float64(n)) + 1e-9
		for i, v := range x {
			y[i] = float32((float64(v) - mean) / deviation)
		}
	})
	if err != nil {
		return nil, err
	}
	return op.One(c.Transpose(y, back))
}

// runLRN divides by a power of the sum of the squares of neighbouring channels.
func runLRN(c *op.Call) ([]*execute.Tensor, error) {
	t, size := c.In[0], int(c.Int("size", 1))
	if len(t.Dims) < 2 || !t.IsFloat() || size < 1 {
		return nil, op.Unsupported("size %d for dims %v of type %v", size, t.Dims, t.DType)
	}
	alpha, beta, bias := float64(c.Float("alpha", 1e-4)), float64(c.Float("beta", 0.75)), float64(c.Float("bias", 1))
	_, channels, inner := op.Sizes(t.Dims, 1)
	if err := c.Spend(float64(t.Len()) * float64(min(size, channels)+20)); err != nil {
		return nil, err
	}
	return op.One(c.NewFloats(t.DType, t.Dims, func(y []float32) error {
		x := op.Floats(t)
		for i, v := range x {
			channel := i / inner % channels
			squares := 0.0
			for k := max(0, channel-(size-1)/2); k <= min(channels-1, channel+size/2); k++ {
				squares += square(float64(x[i+(k-channel)*inner]))
			}
			y[i] = float32(float64(v) / math.Pow(bias+alpha/float64(size)*squares, beta))
		}
		return nil
	}))
}
