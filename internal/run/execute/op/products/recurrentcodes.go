package products

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// recurrentCodes is what a recurrent of codes of 8 bits has. Its weights and inputs are codes less their zero points.
type recurrentCodes struct {
	input float32   // scale of the inputs
	w, r  []float32 // scales of the rows of the weights, in all directions

	// What the states of a step are before it: ONNX Runtime finds one scale for the batch.
	scaled float32
	states []float32
	state  []float32 // of a sequence
}

// runDynamicQuantizeLSTM is the LSTM of com.microsoft that makes codes of its inputs and states.
func runDynamicQuantizeLSTM(c *op.Call) ([]*execute.Tensor, error) {
	if c.In[0].DType != dtype.Float32 {
		return nil, op.BadType(c.In[0])
	}
	codes := &recurrentCodes{}
	list := slices.Clone(c.In[:min(len(c.In), 8)])
	var err error
	for i, scales := range []*[]float32{&codes.w, &codes.r} {
		if list[1+i], *scales, err = transposedCodes(c, c.In[1+i], c.Input(8+2*i), c.Input(9+2*i)); err != nil {
			return nil, err
		}
	}
	x := make([]float32, c.In[0].Len())
	codes.input = dynamicCodes(x, op.Floats(c.In[0]))
	list[0] = execute.Made(dtype.Float32, c.In[0].Dims, x)
	call := *c
	call.In = list
	n, err := newRecurrent(&call, 4, []string{"Sigmoid", "Tanh", "Tanh"}, 5, 6)
	if err != nil {
		return nil, err
	}
	n.codes, codes.states = codes, make([]float32, n.batch*n.hidden)
	return n.lstm()
}

// transposedCodes returns codes [directions, K, N] less their zero points as [directions, N, K], and the scale of each row.
func transposedCodes(c *op.Call, t, scale, zero *execute.Tensor) (*execute.Tensor, []float32, error) {
	if scale == nil || len(t.Dims) != 3 {
		return nil, nil, fmt.Errorf("%w: a scale, or weights of three dimensions", op.ErrMissingInput)
	}
	if t.DType != dtype.Int8 && t.DType != dtype.Uint8 || !scale.IsFloat() || zero != nil && zero.DType != t.DType {
		return nil, nil, op.Unsupported("codes of type %v", t.DType)
	}
	directions, k, rows := int(t.Dims[0]), int(t.Dims[1]), int(t.Dims[2])
	if n := scale.Len(); n != directions && n != directions*rows || zero != nil && zero.Len() != n {
		return nil, nil, op.Unsupported("scales with dims %v", scale.Dims)
	}
	if err := c.Room(dtype.Float32, t.Dims); err != nil {
		return nil, nil, err
	}
	each := scale.Len() / max(directions, 1) // of a direction
	scales, zeros := make([]float32, directions*rows), make([]int64, directions*rows)
	for i := range scales {
		at := i / max(rows, 1)
		if each > 1 {
			at = i
		}
		scales[i] = op.Floats(scale)[at]
		if zero != nil {
			zeros[i] = zero.Int64s()[at]
		}
	}
	y, codes := make([]float32, t.Len()), t.Int64s()
	for d := range directions {
		for i := range k {
			for j := range rows {
				y[(d*rows+j)*k+i] = float32(codes[(d*k+i)*rows+j] - zeros[d*rows+j])
			}
		}
	}
	return execute.Made(dtype.Float32, []int64{int64(directions), int64(rows), int64(k)}, y), scales, nil
}

// dynamicCodes sets y to codes of x of 8 bits less their zero point, for the range of x with 0, and returns the scale.
func dynamicCodes(y, x []float32) float32 {
	var lo, hi float32
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	scale := (hi - lo) / 255
	if scale == 0 {
		clear(y)
		return 1
	}
	zero := float32(math.RoundToEven(float64(min(max(-lo/scale, 0), 255))))
	for i, v := range x {
		y[i] = min(max(float32(math.RoundToEven(float64(v/scale)))+zero, 0), 255) - zero
	}
	return scale
}

// before makes codes of the states of a direction, before a step.
func (q *recurrentCodes) before(n *recurrent, direction int) {
	if q != nil {
		size := n.batch * n.hidden
		q.scaled = dynamicCodes(q.states, n.states[0][direction*size:][:size])
	}
}

// sequence says whose state add takes.
func (q *recurrentCodes) sequence(b, hidden int) {
	if q != nil {
		q.state = q.states[b*hidden:][:hidden]
	}
}

// add adds the products of the codes of a state and of weights to sums, whose first row is given.
func (q *recurrentCodes) add(sums, r []float32, row int) {
	for i := range sums {
		sums[i] += kernels.Dot(q.state, r[i*len(q.state):][:len(q.state)]) * (q.scaled * q.r[row+i])
	}
}

// scale multiplies each row of y by scales and by a scale.
func (q *recurrentCodes) scale(y []float32, one float32, scales []float32) {
	for i := range y {
		y[i] *= one * scales[i%len(scales)]
	}
}
