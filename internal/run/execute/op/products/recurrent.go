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

const recurrentAttributes = "activation_alpha activation_beta activations clip direction hidden_size layout"

// recurrent is an RNN, GRU or LSTM whose sizes are checked.
type recurrent struct {
	c                         *op.Call
	gates, hidden, in         int
	length, batch, directions int
	x                         []float32 // [length, batch, in]
	w, r, b                   []float32 // of all directions; b may be nil
	lengths                   []int64   // of the sequences; nil: all
	states                    [][]float32
	activations               []func(y, x []float32)
	clip                      float32
	layout                    bool // batch first
	factors                   factors
	sequence                  int // that the present step is of
}

// factors multiply by the weights of a recurrent.
type factors interface {
	// given returns the products of a direction with the inputs of all steps [length, batch, gates × hidden], and their biases.
	given(n *recurrent, direction int) ([]float32, error)
	// before is called before a step of a direction.
	before(n *recurrent, direction int)
	// add adds the products of rows of the recurrent weights, from row on, with the state of a sequence to sums.
	add(n *recurrent, sums, state []float32, row int)
}

// gate functions by ONNX's names.
var gateFunctions = map[string]func(y, x []float32){
	"Sigmoid": func(y, x []float32) {
		for i, v := range x {
			y[i] = -v
		}
		kernels.Exp(y, y)
		for i, v := range y {
			y[i] = 1 / (1 + v)
		}
	},
	"Tanh": kernels.Tanh.Apply,
	"Relu": func(y, x []float32) { kernels.Clip(y, x, 0, float32(math.Inf(1))) },
}

// newRecurrent reads the inputs and attributes. states has the inputs that are first states.
func newRecurrent(c *op.Call, gates int, activations []string, states ...int) (*recurrent, error) {
	x, w, r := c.In[0], c.In[1], c.In[2]
	if len(x.Dims) != 3 || len(w.Dims) != 3 || len(r.Dims) != 3 || x.DType != w.DType || x.DType != r.DType || !x.IsFloat() {
		return nil, fmt.Errorf("inputs with dims %v, %v and %v", x.Dims, w.Dims, r.Dims)
	}
	n := &recurrent{c: c, gates: gates, hidden: int(r.Dims[2]), in: int(x.Dims[2]), directions: int(w.Dims[0]), clip: c.Float("clip", 0), layout: c.Is("layout"), factors: floats{}}
	want := map[string]int{"forward": 1, "reverse": 1, "bidirectional": 2}[c.Text("direction", "forward")]
	rows := int64(gates * n.hidden)
	if n.directions != want || !slices.Equal(w.Dims, []int64{int64(want), rows, x.Dims[2]}) || !slices.Equal(r.Dims, []int64{int64(want), rows, int64(n.hidden)}) {
		return nil, fmt.Errorf("weights with dims %v and %v for an input with dims %v", w.Dims, r.Dims, x.Dims)
	}
	if n.layout {
		var err error
		if x, err = c.Transpose(x, []int{1, 0, 2}); err != nil {
			return nil, err
		}
	}
	n.length, n.batch, n.x, n.w, n.r = int(x.Dims[0]), int(x.Dims[1]), op.Floats(x), op.Floats(w), op.Floats(r)
	if t := c.Input(3); t != nil {
		if t.Len() != want*2*int(rows) {
			return nil, fmt.Errorf("biases with dims %v", t.Dims)
		}
		n.b = op.Floats(t)
	}
	if t := c.Input(4); t != nil {
		if n.lengths = t.Int64s(); len(n.lengths) != n.batch {
			return nil, fmt.Errorf("%d lengths for a batch of %d", len(n.lengths), n.batch)
		}
	}
	return n, n.start(activations, states)
}

// start reads activations and first states.
func (n *recurrent) start(activations []string, states []int) error {
	names := slices.Repeat(activations, n.directions)
	if a := n.c.Attribute("activations"); a != nil {
		for i, name := range a.GetStrings() {
			if i < len(names) {
				names[i] = string(name)
			}
		}
	}
	for _, name := range names {
		f := gateFunctions[name]
		if f == nil {
			return op.Unsupported("activation %q", name)
		}
		n.activations = append(n.activations, f)
	}
	work := float64(n.length) * float64(n.batch) * float64(n.directions) * float64(n.gates*n.hidden) * float64(n.in+n.hidden+20)
	if err := n.c.Spend(work); err != nil {
		return err
	}
	for _, dims := range [][]int64{{int64(n.length), int64(n.batch), int64(n.gates * n.hidden)}, {int64(n.directions), int64(n.batch), int64(n.hidden)}} {
		if err := n.c.Room(dtype.Float32, dims); err != nil {
			return err
		}
	}
	size := n.directions * n.batch * n.hidden
	for _, input := range states {
		state := make([]float32, size)
		if t := n.c.Input(input); t != nil {
			if t.Len() != size {
				return fmt.Errorf("a state with dims %v", t.Dims)
			}
			if n.layout { // [batch, directions, hidden]
				var err error
				if t, err = n.c.Transpose(t, []int{1, 0, 2}); err != nil {
					return err
				}
			}
			copy(state, op.Floats(t))
		}
		n.states = append(n.states, state)
	}
	return nil
}

// cell computes a step of one sequence: gates has what the input gives, state what was before and then is.
type cell func(gates []float32, states [][]float32, direction int) error

// run computes all steps and returns Y [length, directions, batch, hidden].
func (n *recurrent) run(step cell) ([]float32, error) {
	rows := n.gates * n.hidden
	y := make([]float32, n.length*n.directions*n.batch*n.hidden)
	states := make([][]float32, len(n.states))
	for d := range n.directions {
		given, err := n.factors.given(n, d)
		if err != nil {
			return nil, err
		}
		back := n.c.Text("direction", "forward") == "reverse" || d == 1
		for i := range n.length {
			n.factors.before(n, d)
			for b := range n.batch {
				length := n.length
				if n.lengths != nil {
					length = int(min(max(n.lengths[b], 0), int64(length)))
				}
				at := i
				if back {
					at = length - 1 - i
				}
				if i >= length {
					continue
				}
				for k, s := range n.states {
					states[k] = s[(d*n.batch+b)*n.hidden:][:n.hidden]
				}
				n.sequence = b
				if err := step(given[(at*n.batch+b)*rows:][:rows], states, d); err != nil {
					return nil, err
				}
				copy(y[((at*n.directions+d)*n.batch+b)*n.hidden:], states[0])
			}
		}
	}
	return y, nil
}

// inputs returns the products of a direction with n.x, from start on.
func (n *recurrent) inputs(d int, start linalg.Matrix) ([]float32, error) {
	rows := n.gates * n.hidden
	y := make([]float32, n.length*n.batch*rows)
	p := linalg.Product{C: linalg.Of(y, n.length*n.batch, rows), A: linalg.Of(n.x, n.length*n.batch, n.in), B: linalg.Of(n.w[d*rows*n.in:], rows, n.in).T(), Fresh: true, Start: start}
	return y, linalg.AddProducts(n.c.Context(), op.Workers(), []linalg.Product{p})
}

// floats are factors that are floats.
type floats struct{}

func (floats) given(n *recurrent, d int) ([]float32, error) {
	var start linalg.Matrix
	if n.b != nil {
		start = linalg.Matrix{Data: n.b[d*2*n.gates*n.hidden:], Column: 1}
	}
	return n.inputs(d, start)
}

func (floats) before(*recurrent, int) {}

func (floats) add(n *recurrent, sums, state []float32, row int) {
	for i := range sums {
		sums[i] += kernels.Dot(state, n.r[(row+i)*n.hidden:][:n.hidden])
	}
}

// add adds the product of some gates' recurrent weights with a state, and their biases, to sums.
func (n *recurrent) add(sums, state []float32, first, direction int) {
	rows := n.gates * n.hidden
	n.factors.add(n, sums, state, direction*rows+first*n.hidden)
	if n.b != nil {
		kernels.Add(sums, sums, n.b[(direction*2+1)*rows+first*n.hidden:][:len(sums)])
	}
}

// activate applies an activation of a direction.
func (n *recurrent) activate(x []float32, number, direction int) {
	if n.clip > 0 {
		kernels.Clip(x, x, -n.clip, n.clip)
	}
	n.activations[direction*len(n.activations)/n.directions+number](x, x)
}

// results returns Y and the last states.
func (n *recurrent) results(y []float32) ([]*execute.Tensor, error) {
	typ := n.c.In[0].DType
	whole, err := execute.FromFloat32s(typ, []int64{int64(n.length), int64(n.directions), int64(n.batch), int64(n.hidden)}, y)
	if err != nil {
		return nil, err
	}
	if n.layout {
		if whole, err = n.c.Transpose(whole, []int{2, 0, 1, 3}); err != nil {
			return nil, err
		}
	}
	list := []*execute.Tensor{whole}
	for _, state := range n.states {
		t, err := execute.FromFloat32s(typ, []int64{int64(n.directions), int64(n.batch), int64(n.hidden)}, state)
		if err == nil && n.layout {
			t, err = n.c.Transpose(t, []int{1, 0, 2})
		}
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func runRNN(c *op.Call) ([]*execute.Tensor, error) {
	n, err := newRecurrent(c, 1, []string{"Tanh"}, 5)
	if err != nil {
		return nil, err
	}
	y, err := n.run(func(gates []float32, states [][]float32, d int) error {
		n.add(gates, states[0], 0, d)
		n.activate(gates, 0, d)
		copy(states[0], gates)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n.results(y)
}

// runGRU has the gates update, reset and hidden.
func runGRU(c *op.Call) ([]*execute.Tensor, error) {
	n, err := newRecurrent(c, 3, []string{"Sigmoid", "Tanh"}, 5)
	if err != nil {
		return nil, err
	}
	h, linear := n.hidden, c.Is("linear_before_reset")
	extra := make([]float32, h)
	y, err := n.run(func(gates []float32, states [][]float32, d int) error {
		state := states[0]
		n.add(gates[:2*h], state, 0, d)
		n.activate(gates[:2*h], 0, d)
		update, reset, fresh := gates[:h], gates[h:2*h], gates[2*h:]
		clear(extra)
		if linear {
			n.add(extra, state, 2, d)
			kernels.Multiply(extra, extra, reset)
			kernels.Add(fresh, fresh, extra)
		} else {
			kernels.Multiply(extra, reset, state)
			n.add(fresh, extra, 2, d)
		}
		n.activate(fresh, 1, d)
		for i, z := range update {
			state[i] = float32((1-z)*fresh[i]) + float32(z*state[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n.results(y)
}

// runLSTM has the gates input, output, forget and cell.
func runLSTM(c *op.Call) ([]*execute.Tensor, error) {
	n, err := newRecurrent(c, 4, []string{"Sigmoid", "Tanh", "Tanh"}, 5, 6)
	if err != nil {
		return nil, err
	}
	return n.lstm()
}

func (n *recurrent) lstm() ([]*execute.Tensor, error) {
	h, c := n.hidden, n.c
	var peep []float32
	if t := c.Input(7); t != nil {
		if t.Len() != n.directions*3*h {
			return nil, fmt.Errorf("peepholes with dims %v", t.Dims)
		}
		peep = op.Floats(t)
	}
	joined := c.Is("input_forget")
	y, err := n.run(func(gates []float32, states [][]float32, d int) error {
		state, memory := states[0], states[1]
		n.add(gates, state, 0, d)
		in, out, forget, fresh := gates[:h], gates[h:2*h], gates[2*h:3*h], gates[3*h:]
		look := func(gate []float32, number int) {
			if peep != nil {
				for i, p := range peep[(d*3+number)*h:][:h] {
					gate[i] += float32(p * memory[i])
				}
			}
		}
		look(in, 0)
		look(forget, 2)
		n.activate(in, 0, d)
		n.activate(forget, 0, d)
		n.activate(fresh, 1, d)
		for i := range memory {
			if joined {
				forget[i] = 1 - in[i]
			}
			memory[i] = float32(forget[i]*memory[i]) + float32(in[i]*fresh[i])
		}
		look(out, 1)
		n.activate(out, 0, d)
		copy(state, memory)
		n.activations[d*len(n.activations)/n.directions+2](state, state)
		kernels.Multiply(state, state, out)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n.results(y)
}
