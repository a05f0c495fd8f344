package products

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// recurrentCodes are factors of 8 bits. Weights and inputs are codes less their zero points. It is for an LSTM: each step multiplies
// by the states, of which ONNX Runtime makes codes with one scale for the batch.
type recurrentCodes struct {
	input  float32   // scale of the inputs
	w, r   []float32 // scales of the rows of the weights, in all directions
	scale  float32   // of the states of the present step
	states []float32 // their codes
}

// runDynamicQuantizeLSTM is the LSTM of com.microsoft that makes codes of its inputs and states.
func runDynamicQuantizeLSTM(c *op.Call) ([]*execute.Tensor, error) {
	x, w, r := c.In[0], c.In[1], c.In[2]
	if x.DType != dtype.Float32 {
		return nil, op.BadType(x)
	}
	if c.Input(4) != nil {
		return nil, op.Unsupported("lengths of sequences")
	}
	fits := func(t *execute.Tensor, k int64) bool {
		return len(t.Dims) == 3 && t.Len() > 0 && t.Dims[0] == r.Dims[0] && t.Dims[1] == k && t.Dims[2] == 4*r.Dims[1]
	}
	if len(x.Dims) != 3 || len(r.Dims) != 3 || !fits(r, r.Dims[1]) || !fits(w, x.Dims[2]) {
		return nil, op.Unsupported("weights with dims %v and %v for an input with dims %v", w.Dims, r.Dims, x.Dims)
	}
	if err := c.Room(dtype.Float32, x.Dims); err != nil {
		return nil, err
	}
	codes := &recurrentCodes{}
	list := slices.Clone(c.In[:min(len(c.In), 8)])
	var err error
	for i, scales := range []*[]float32{&codes.w, &codes.r} {
		if list[1+i], *scales, err = transposedCodes(c, c.In[1+i], c.Input(8+2*i), c.Input(9+2*i)); err != nil {
			return nil, err
		}
	}
	numbers := make([]float32, x.Len())
	codes.input = dynamicCodes(numbers, op.Floats(x))
	list[0] = execute.Made(dtype.Float32, x.Dims, numbers)
	call := *c
	call.In = list
	n, err := newRecurrent(&call, 4, []string{"Sigmoid", "Tanh", "Tanh"}, 5, 6)
	if err != nil {
		return nil, err
	}
	n.factors, codes.states = codes, make([]float32, n.batch*n.hidden)
	return n.lstm()
}

// transposedCodes returns codes [directions, K, N], of which there is one at least, less their zero points as [directions, N, K],
// and the scale of each row.
func transposedCodes(c *op.Call, t, scale, zero *execute.Tensor) (*execute.Tensor, []float32, error) {
	if scale == nil {
		return nil, nil, fmt.Errorf("%w: a scale", op.ErrMissingInput)
	}
	if t.DType != dtype.Int8 && t.DType != dtype.Uint8 || !scale.IsFloat() || zero != nil && zero.DType != t.DType {
		return nil, nil, op.Unsupported("codes of type %v", t.DType)
	}
	directions, k, rows := int(t.Dims[0]), int(t.Dims[1]), int(t.Dims[2])
	if n := scale.Len(); n != directions && n != directions*rows || zero != nil && zero.Len() != n {
		return nil, nil, op.Unsupported("scales with dims %v", scale.Dims)
	}
	if err := c.Room(dtype.Float64, t.Dims); err != nil { // the numbers; a row has no more of scales and zeros
		return nil, nil, err
	}
	scales, zeros := make([]float32, directions*rows), make([]int64, directions*rows)
	given, shifts := op.Floats(scale), []int64(nil)
	if zero != nil {
		shifts = zero.Int64s()
	}
	for i := range scales {
		at := i
		if len(given) == directions {
			at = i / rows
		}
		scales[i] = given[at]
		if zero != nil {
			zeros[i] = shifts[at]
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

func (q *recurrentCodes) given(n *recurrent, d int) ([]float32, error) {
	y, err := n.inputs(d, linalg.Matrix{})
	if err != nil {
		return nil, err
	}
	rows := n.gates * n.hidden
	for at := 0; at < len(y); at += rows {
		row := y[at:][:rows]
		for i, scale := range q.w[d*rows:][:rows] {
			row[i] *= q.input * scale
		}
		if n.b != nil {
			kernels.Add(row, row, n.b[d*2*rows:][:rows])
		}
	}
	return y, nil
}

func (q *recurrentCodes) before(n *recurrent, d int) {
	size := n.batch * n.hidden
	q.scale = dynamicCodes(q.states, n.states[0][d*size:][:size])
}

// add takes the codes in place of the state.
func (q *recurrentCodes) add(n *recurrent, sums, _ []float32, row int) {
	state := q.states[n.sequence*n.hidden:][:n.hidden]
	for i := range sums {
		sums[i] += kernels.Dot(state, n.r[(row+i)*n.hidden:][:n.hidden]) * (q.scale * q.r[row+i])
	}
}
