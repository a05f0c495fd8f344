package contrib

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/elementwise"
	"onnxquant/internal/run/execute/op/products"
	"onnxquant/internal/run/execute/op/reduce"
)

var tables = []op.Table{elementwise.Operators, products.Operators, reduce.Operators}

// apply runs an operator of ONNX on values.
func apply(c *op.Call, name string, attributes []*onnxpb.AttributeProto, in ...*execute.Tensor) (*execute.Tensor, error) {
	for _, t := range tables {
		if operator, ok := t[name]; ok {
			node := &onnxpb.NodeProto{OpType: &name, Attribute: attributes, Output: []string{"y"}}
			out, err := operator.Run(&op.Call{Host: c.Host, Node: node, In: in, Opset: 22})
			if err != nil {
				return nil, err
			}
			return out[0], nil
		}
	}
	return nil, op.Unsupported("a fused %s", name)
}

func number(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}

func text(name, v string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(v)}
}

// sum adds what is there.
func sum(c *op.Call, list ...*execute.Tensor) (t *execute.Tensor, err error) {
	for _, next := range list {
		switch {
		case next == nil:
		case t == nil:
			t = next
		default:
			if t, err = apply(c, "Add", nil, t, next); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// biasGelu is Gelu of a sum; approximate is its attribute.
func biasGelu(approximate string) func(c *op.Call) ([]*execute.Tensor, error) {
	return func(c *op.Call) ([]*execute.Tensor, error) {
		t, err := sum(c, c.In[0], c.Input(1))
		if err != nil {
			return nil, err
		}
		return op.One(apply(c, "Gelu", []*onnxpb.AttributeProto{text("approximate", approximate)}, t))
	}
}

func runQuickGelu(c *op.Call) ([]*execute.Tensor, error) {
	return op.One(apply(c, "Swish", []*onnxpb.AttributeProto{number("alpha", c.Float("alpha", 1.702))}, c.In[0]))
}

// skipNormalization normalizes the sum of an input, its skip and a bias. It also returns the sum.
func skipNormalization(name string, scale, offset, bias int) func(c *op.Call) ([]*execute.Tensor, error) {
	return func(c *op.Call) ([]*execute.Tensor, error) {
		if c.Wants(1) || c.Wants(2) {
			return nil, op.Unsupported("outputs of the mean and deviation")
		}
		t, err := sum(c, c.In[0], c.In[1], c.Input(bias))
		if err != nil {
			return nil, err
		}
		in := []*execute.Tensor{t, c.In[scale]}
		if offset > 0 && c.Input(offset) != nil {
			in = append(in, c.In[offset])
		}
		y, err := apply(c, name, []*onnxpb.AttributeProto{number("epsilon", c.Float("epsilon", 1e-12))}, in...)
		return []*execute.Tensor{y, nil, nil, t}, err
	}
}

func runSimplifiedLayerNormalization(c *op.Call) ([]*execute.Tensor, error) {
	return reduce.Operators["RMSNormalization"].Run(c)
}

// activated applies the activation that a fused node names. parameters are in the order of its attributes.
func activated(c *op.Call, t *execute.Tensor, parameters []float32) (*execute.Tensor, error) {
	name := c.Text("activation", "")
	names := map[string][]string{"LeakyRelu": {"alpha"}, "Clip": {"min", "max"}, "HardSigmoid": {"alpha", "beta"}}[name]
	switch {
	case name == "":
		return t, nil
	case name != "Relu" && name != "Sigmoid" && name != "Tanh" && names == nil:
		return nil, op.Unsupported("activation %q", name)
	}
	var list []*onnxpb.AttributeProto
	for i, n := range names {
		if i < len(parameters) {
			list = append(list, number(n, parameters[i]))
		}
	}
	return apply(c, name, list, t)
}

func runFusedConv(c *op.Call) ([]*execute.Tensor, error) {
	inner := *c
	inner.In = c.In[:min(len(c.In), 3)]
	out, err := products.Operators["Conv"].Run(&inner)
	if err != nil {
		return nil, err
	}
	t, err := sum(c, out[0], c.Input(3))
	if err != nil {
		return nil, err
	}
	var parameters []float32
	if a := c.Attribute("activation_params"); a != nil {
		parameters = a.GetFloats()
	}
	return op.One(activated(c, t, parameters))
}

func runFusedGemm(c *op.Call) ([]*execute.Tensor, error) {
	out, err := products.Operators["Gemm"].Run(c)
	if err != nil {
		return nil, err
	}
	return op.One(activated(c, out[0], []float32{c.Float("activation_alpha", 0), c.Float("activation_beta", 0)}))
}

func runFusedMatMul(c *op.Call) ([]*execute.Tensor, error) {
	if c.Is("transBatchA") || c.Is("transBatchB") {
		return nil, op.Unsupported("transBatchA or transBatchB")
	}
	in := slices.Clone(c.In[:2])
	for i, name := range []string{"transA", "transB"} {
		rank := len(in[i].Dims)
		if !c.Is(name) || rank < 2 {
			continue
		}
		perm := make([]int, rank)
		for k := range perm {
			perm[k] = k
		}
		perm[rank-2], perm[rank-1] = rank-1, rank-2
		var err error
		if in[i], err = c.Transpose(in[i], perm); err != nil {
			return nil, err
		}
	}
	t, err := products.MatMul(c, in[0], in[1])
	if err != nil {
		return nil, err
	}
	if alpha := c.Float("alpha", 1); alpha != 1 {
		factor, err := execute.FromFloat32s(t.DType, nil, []float32{alpha})
		if err != nil {
			return nil, err
		}
		return op.One(apply(c, "Mul", nil, t, factor))
	}
	return op.One(t, nil)
}

// runEmbedLayerNormalization normalizes the sum of the embeddings of words, positions and segments.
func runEmbedLayerNormalization(c *op.Call) ([]*execute.Tensor, error) {
	ids, segments := c.In[0], c.Input(1)
	if len(ids.Dims) != 2 || len(c.In) < 7 || c.In[3] == nil || len(c.In[2].Dims) != 2 || len(c.In[3].Dims) != 2 {
		return nil, op.Unsupported("ids with dims %v, or no table of positions", ids.Dims)
	}
	if c.Input(7) != nil {
		return nil, op.Unsupported("a mask")
	}
	positions := c.Input(8)
	if positions == nil {
		list := make([]int64, ids.Len())
		for i := range list {
			list[i] = int64(i) % ids.Dims[1]
		}
		positions = op.Int64(ids.Dims, list)
	}
	var parts []*execute.Tensor
	for _, pair := range [][2]*execute.Tensor{{c.In[2], ids}, {c.In[3], positions}, {c.In[4], segments}} {
		if pair[0] == nil || pair[1] == nil {
			continue
		}
		if err := c.Room(pair[0].DType, slices.Concat(pair[1].Dims, pair[0].Dims[1:])); err != nil {
			return nil, err
		}
		part, err := c.Gather(pair[0], pair[1], 0)
		if err != nil {
			return nil, err
		}
		if part, err = c.Expand(part, slices.Concat(ids.Dims, part.Dims[len(part.Dims)-1:])); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	t, err := sum(c, parts...)
	if err != nil {
		return nil, err
	}
	y, err := apply(c, "LayerNormalization", []*onnxpb.AttributeProto{number("epsilon", c.Float("epsilon", 1e-12))}, t, c.In[5], c.In[6])
	return []*execute.Tensor{y, execute.Made(dtype.Int32, ids.Dims[:1], make([]int32, ids.Dims[0])), t}, err
}

// runRotaryEmbedding has the positions before the tables, and a tensor of rank 4 as [batch, heads, length, size].
func runRotaryEmbedding(c *op.Call) ([]*execute.Tensor, error) {
	x, positions := c.In[0], c.In[1]
	if c.Is("is_packed_batching") || c.Float("scale", 1) != 1 {
		return nil, op.Unsupported("is_packed_batching or scale")
	}
	heads := c.Int("num_heads", 0)
	if size := c.In[2].Dims[len(c.In[2].Dims)-1] * 2; heads == 0 && len(x.Dims) == 3 && size > 0 {
		heads = x.Dims[2] / size
	}
	h, err := products.NewHeads(c, x, heads)
	if err != nil {
		return nil, err
	}
	if err := products.Rotate(h, c.In[2], c.In[3], positions, int(c.Int("rotary_embedding_dim", 0)), c.Is("interleaved")); err != nil {
		return nil, err
	}
	return op.One(h.Tensor(c, x.DType, len(x.Dims) == 3))
}

// addBias adds part of a bias to the last axis of t.
func addBias(c *op.Call, t, bias *execute.Tensor, from int64) (*execute.Tensor, error) {
	if bias == nil {
		return t, nil
	}
	n := t.Dims[len(t.Dims)-1]
	if len(bias.Dims) != 1 || from+n > bias.Dims[0] {
		return nil, fmt.Errorf("a bias with dims %v", bias.Dims)
	}
	part, err := c.Slice(bias, 0, from, n)
	if err != nil {
		return nil, err
	}
	return apply(c, "Add", nil, t, part)
}
