package contrib

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/experts"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// mixture is a MoE with its weights: fc1 [experts, wide, hidden], fc2 [experts, hidden, inner] and fc3
// [experts, inner, hidden] or nil, and biases or nil.
type mixture struct {
	experts, wide, hidden, inner int
	fc1, fc2, fc3                []float32
	bias1, bias2, bias3          []float32
	activation                   experts.Activation
}

// runQMoE is runMoE with weights in codes.
func runQMoE(c *op.Call) ([]*execute.Tensor, error) {
	if c.Text("quant_type", "int") != "int" || c.Int("weights_prepacked", 0) > 0 {
		return nil, op.Unsupported("quant_type or weights_prepacked")
	}
	for i := 8; i < len(c.In); i++ {
		if c.In[i] != nil && i != 11 && i != 12 {
			return nil, op.Unsupported("input %d", i)
		}
	}
	fc1, err := expertWeights(c, 2, 3, 11, c.Int("fc1_expert_weight_bits", c.Int("expert_weight_bits", 4)))
	if err != nil {
		return nil, err
	}
	fc2, err := expertWeights(c, 5, 6, 12, c.Int("fc2_expert_weight_bits", c.Int("expert_weight_bits", 4)))
	if err != nil {
		return nil, err
	}
	inner := *c
	inner.In = []*execute.Tensor{c.In[0], c.In[1], fc1, c.Input(4), fc2, c.Input(7)}
	return runMoE(&inner)
}

// expertWeights decodes the weights [experts, rows, columns] of a layer.
func expertWeights(c *op.Call, codes, scales, zeros int, bits int64) (*execute.Tensor, error) {
	w, s := c.Input(codes), c.Input(scales)
	if w == nil || s == nil {
		return nil, op.ErrMissingInput
	}
	if len(w.Dims) != 3 || w.DType != dtype.Uint8 || bits != 2 && bits != 4 && bits != 8 {
		return nil, op.Unsupported("weights with dims %v of type %v in %d bits", w.Dims, w.DType, bits)
	}
	dims := []int64{w.Dims[0], w.Dims[1], w.Dims[2] * 8 / bits}
	block := c.Int("block_size", 0)
	if block <= 0 {
		block = dims[2]
	}
	p, err := newPacked(packed{rows: int(dims[0] * dims[1]), columns: int(dims[2]), bits: int(bits), block: int(block), rowBytes: int(w.Dims[2]), codes: w.Data, zeros: c.Input(zeros)}, s)
	if err != nil {
		return nil, err
	}
	if p.zeros != nil && c.Int("block_size", 0) <= 0 {
		return nil, op.Unsupported("zero points of whole rows")
	}
	return c.NewFloats(dtype.Float32, dims, func(y []float32) error {
		p.decode(y, 0, p.rows)
		return nil
	})
}

// runMoE computes a MoE as the CPU kernel of ONNX Runtime does: each row goes to k experts.
func runMoE(c *op.Call) ([]*execute.Tensor, error) {
	m, err := newMixture(c)
	if err != nil {
		return nil, err
	}
	x, router := c.In[0], c.In[1]
	rows, k := x.Len()/max(m.hidden, 1), int(c.Int("k", 1))
	if len(x.Dims) == 0 || x.Dims[len(x.Dims)-1] != int64(m.hidden) || router.Len() != rows*m.experts || k < 1 || k > m.experts {
		return nil, fmt.Errorf("its inputs with dims %v and %v do not fit its experts", x.Dims, router.Dims)
	}
	if err := c.Spend(2 * float64(rows*k) * float64(m.wide*m.hidden+m.hidden*m.inner)); err != nil {
		return nil, err
	}
	in, logits, out := x.Float64s(), router.Float64s(), make([]float64, x.Len())
	for i := range rows {
		chosen, shares := experts.Route(logits[i*m.experts:(i+1)*m.experts], k, c.Int("normalize_routing_weights", 0) != 0)
		for j, expert := range chosen {
			made := m.compute(expert, in[i*m.hidden:(i+1)*m.hidden])
			for n, v := range made {
				out[i*m.hidden+n] += float64(shares[j] * v)
			}
		}
	}
	return op.One(execute.FromFloat64s(x.DType, x.Dims, out))
}

// mixture reads the weights and the activation of a MoE.
func newMixture(c *op.Call) (m *mixture, err error) {
	fc1, fc2 := c.In[2], c.Input(4)
	switch {
	case c.Int("use_sparse_mixer", 0) != 0:
		return nil, op.Unsupported("use_sparse_mixer")
	case fc2 == nil:
		return nil, op.ErrMissingInput
	case len(fc1.Dims) != 3 || len(fc2.Dims) != 3 || fc1.Dims[0] != fc2.Dims[0] || fc1.Dims[2] != fc2.Dims[1]:
		return nil, op.Unsupported("weights with dims %v and %v", fc1.Dims, fc2.Dims)
	}
	m = &mixture{
		experts: int(fc1.Dims[0]), wide: int(fc1.Dims[1]), hidden: int(fc1.Dims[2]), inner: int(fc2.Dims[2]),
		fc1: fc1.Float32s(), fc2: fc2.Float32s(),
	}
	if fc3 := c.Input(6); fc3 != nil {
		if !slices.Equal(fc3.Dims, []int64{fc1.Dims[0], fc2.Dims[2], fc1.Dims[2]}) {
			return nil, op.Unsupported("weights with dims %v and %v", fc1.Dims, fc3.Dims)
		}
		m.fc3 = fc3.Float32s()
	}
	for input, bias := range map[int]*[]float32{3: &m.bias1, 5: &m.bias2, 7: &m.bias3} {
		if t := c.Input(input); t != nil {
			*bias = t.Float32s()
		}
	}
	if m.bias1 != nil && len(m.bias1) != m.experts*m.wide || m.bias2 != nil && len(m.bias2) != m.experts*m.hidden || m.bias3 != nil && len(m.bias3) != m.experts*m.inner {
		return nil, fmt.Errorf("its biases do not fit its experts")
	}
	m.activation = experts.Activation{
		Type: c.Text("activation_type", "relu"), Fusion: c.Int("swiglu_fusion", 0),
		Alpha: float64(c.Float("activation_alpha", 1)), Beta: float64(c.Float("activation_beta", 0)), Limit: float64(c.Float("swiglu_limit", float32(math.Inf(1)))),
	}
	if !m.activation.Known(m.fc3 != nil) {
		return nil, op.Unsupported("activation_type %q with swiglu_fusion %d", m.activation.Type, m.activation.Fusion)
	}
	want := m.inner
	if m.activation.Doubles() {
		want *= 2
	}
	if m.wide != want {
		return nil, op.Unsupported("weights with dims %v and %v", fc1.Dims, fc2.Dims)
	}
	return m, nil
}

// compute returns the output of an expert for a row.
func (m *mixture) compute(expert int, x []float64) []float64 {
	h := affine(m.fc1, m.bias1, expert, m.wide, x)
	var values []float64
	if m.fc3 != nil {
		values = affine(m.fc3, m.bias3, expert, m.inner, x)
	}
	return affine(m.fc2, m.bias2, expert, m.hidden, m.activation.Apply(h, values))
}

// affine multiplies x by the matrix [n, len(x)] of an expert, and adds its bias.
func affine(w, bias []float32, expert, n int, x []float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		row := w[(expert*n+i)*len(x):][:len(x)]
		sum := 0.0
		for k, v := range row {
			sum += float64(v) * x[k]
		}
		if bias != nil {
			sum += float64(bias[expert*n+i])
		}
		out[i] = sum
	}
	return out
}
