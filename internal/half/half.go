// Package half makes a float16 or bfloat16 model ("half" in this package) from a float32 one.
//
// [New] gets the graph of a model, which it only reads, and returns a new graph, which the caller
// owns. In the new graph, values and tensors have the type half, and Casts are inserted where float32
// meets half. The contents of tensors are converted when they are read; planning reads only samples of
// the weights. After reading, [Model.Beyond] lists the tensors that half cannot represent.
//
// Types come from declarations and from the signatures of operators (package optypes). A node stays in
// float32 if
//
//   - its operator does not take half, or is one of [spec.FloatOps]
//   - it reads values that half cannot represent
//   - it shares scales with operators that compute with codes (codes.go)
//   - its inputs or outputs may overflow: squares in a mean (squares.go), sums of codes (sums.go),
//     and values that are large by measured ranges or by an estimate (large.go, sizes.go)
//
// An initializer becomes half if a node in half reads it.
package half

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
	"onnxquant/rules"
)

// Options say which nodes become half, and which half type.
type Options struct {
	To       dtype.DType            // Float16 or BFloat16
	KeepIO   bool                   // inputs and outputs of the model stay in float32
	FloatOps []string               // operators that stay in float32, in addition to spec.FloatOps
	Excluded func(name string) bool // nodes and weights that stay in float32; may be nil
	// KeepCrashingTranspose: the nodes of TransposeCrashes stay in float32.
	KeepCrashingTranspose bool
	// Ranges are measured ranges. Values beyond float16 stay in float32. Values without a range are
	// estimated. May be nil.
	Ranges *rules.Ranges
	Clamp  bool // clamp elements beyond the range; without, the nodes that read them stay in float32
}

// Model is a model in which float32 became half.
type Model struct {
	Graph *graph.Graph
	To    dtype.DType
	Kept  []Kept // nodes that stay in float32
	Casts int    // number of new Casts

	tallies map[string]*Tally // by path of the value
}

// Check refuses the name of an operator that does not exist.
func (o Options) Check() error {
	known := optypes.Operators()
	for _, op := range o.FloatOps {
		if slices.Contains(known, op) {
			continue
		}
		if near, ok := nearest.Name(op, known); ok {
			return fmt.Errorf("operator %s is not known; did you mean %s?", msg.Quote(op), near)
		}
		return fmt.Errorf("operator %s is not known", msg.Quote(op))
	}
	return nil
}

// Tensors is the number of tensors whose contents became half.
func (m *Model) Tensors() int { return len(m.tallies) }

// Kept is a node that stays in float32.
type Kept struct {
	Node     string `json:"node"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
	Opset    int64  `json:"-"` // from which on its operator would take half, if it is known; or 0
}

// New makes a model half. far has the values, by path, whose contents half cannot represent,
// as Beyond returned them.
func New(x *graph.Graph, opts Options, far map[string]string) (*Model, error) {
	t := typesOf(x)
	hard, err := farValues(t, opts, far)
	if err != nil {
		return nil, err
	}
	var large map[*graph.Value]string
	if opts.To == dtype.Float16 {
		large = largeValues(t, opts)
	}
	return build(choose(&choice{typing: t, opts: opts, far: hard, large: large}))
}

// build makes the model of a choice.
func build(c *choice) (*Model, error) {
	x := c.x
	r := &rewriting{x: x, choice: c, copy: x.Copy(), renamed: map[*graph.Value]string{}, casts: map[cast]string{}, added: map[home][]*onnxpb.NodeProto{}}
	r.run()
	m := &Model{To: c.opts.To, Casts: r.count, tallies: map[string]*Tally{}}
	file, err := r.contents(m)
	if err != nil {
		return nil, err
	}
	if m.Graph, err = graph.New(file); err != nil {
		return nil, err
	}
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if why := c.kept[x.Number(n)]; why != "" && c.floats(n) {
			m.Kept = append(m.Kept, Kept{graph.Label(n), graph.Operator(n), why, c.later[x.Number(n)]})
		}
	})
	return m, nil
}

// floats reports whether a node has to do with float32 at all.
func (c *choice) floats(n *onnxpb.NodeProto) bool {
	for _, values := range [][]*graph.Value{c.x.Inputs(n), c.x.Outputs(n)} {
		for _, v := range values {
			if v != nil && c.types[v].float() {
				return true
			}
		}
	}
	return false
}

// Beyond returns the values, by path, with elements beyond the range of half in the parts that were
// read, and a reason for messages.
func (m *Model) Beyond() map[string]string {
	far := map[string]string{}
	for path, t := range m.tallies {
		if t.beyond.Load() {
			far[path] = reasonFar
		}
	}
	return far
}

// Vanished returns how many elements of a value became 0 when they were read.
func (m *Model) Vanished(path string) int64 {
	if t := m.tallies[path]; t != nil {
		return t.Vanished.Load()
	}
	return 0
}

// ForgetVanished sets the counts of Vanished to 0, before the contents are read again.
func (m *Model) ForgetVanished() {
	for _, t := range m.tallies {
		t.Vanished.Store(0)
	}
}

// Rounds reports whether a value, by path, is stored and becomes half.
func (m *Model) Rounds(path string) bool { return m.tallies[path] != nil }

const reasonFar = "holds values beyond the range of float16" // float32 and bfloat16 have the same range

// typeName is a type as ONNX writes it in texts.
func typeName(t dtype.DType) string { return strings.ToLower(t.String()) }

// maxRead is the size up to which contents are read for a plan.
const maxRead = 1 << 10

// farValues finds the small constants that half cannot represent: values beyond its range,
// and single numbers that would become 0.
func farValues(t *typing, opts Options, far map[string]string) (map[*graph.Value]string, error) {
	found := map[*graph.Value]string{}
	for _, v := range t.x.Values {
		if why := far[v.Path]; why != "" {
			found[v] = why
		}
		n := graph.SizeOf(v.Tensor)
		if !t.types[v].float() || n > maxRead || n == 0 {
			continue
		}
		x, err := read(t.x.File, v.Tensor)
		if err != nil {
			return nil, err
		}
		if why := tooFar(x, opts); why != "" {
			found[v] = why
		}
	}
	var failed error
	graph.WalkNodes(t.x.File.Proto, func(n *onnxpb.NodeProto) {
		v := t.x.Made(n)
		if v == nil || v.Tensor != nil || !flexible(n) || !t.types[v].float() {
			return
		}
		x, err := numbers(t.x.File, n)
		if err != nil {
			failed = err
		} else if why := tooFar(x, opts); why != "" {
			found[v] = why
		}
	})
	return found, failed
}

// tooFar says why half cannot represent a constant; "" if it can.
func tooFar(x []float32, opts Options) (why string) {
	limit, least := limits(opts.To)
	for _, e := range x {
		a := math.Float32bits(e) &^ (1 << 31)
		switch {
		case a >= limit && a < infinity && !opts.Clamp:
			why = fmt.Sprintf("is %g: %s ends at %g", e, typeName(opts.To), largest(opts.To))
		case len(x) == 1 && a <= least && a != 0:
			why = fmt.Sprintf("is %g, which would become 0", e)
		}
	}
	return why
}

// numbers returns those in the attributes of a node that makes a constant which is not a value's tensor.
func numbers(file *modelfile.Model, n *onnxpb.NodeProto) ([]float32, error) {
	for _, a := range n.Attribute {
		switch {
		case a.T != nil && graph.SizeOf(a.T) == 4 && a.T.GetDataType() == int32(dtype.Float32):
			return read(file, a.T)
		case a.GetName() == "value_float":
			return []float32{a.GetF()}, nil
		case a.GetName() == "value_floats":
			return a.Floats, nil
		}
	}
	return nil, nil
}

// read reads a small tensor of float32.
func read(file *modelfile.Model, t *onnxpb.TensorProto) ([]float32, error) {
	p, err := file.Payload(t)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, p.Size())
	if _, err := p.ReadAt(raw, 0); err != nil {
		return nil, err
	}
	x := make([]float32, len(raw)/4)
	dtype.Float32.Decode(x, raw)
	return x, nil
}

// contents changes the types of the copy's tensors, and returns the model with their contents.
func (r *rewriting) contents(m *Model) (*modelfile.Model, error) {
	r.copy.Own()
	graph.WalkNodes(r.x.File.Proto, func(n *onnxpb.NodeProto) {
		if v := r.x.Made(n); v != nil && flexible(n) && r.choice.becomesHalf(v) {
			r.constant(r.copy.Node(n))
		}
	})
	return r.x.File.View(r.copy.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		old := r.copy.OriginalTensor(t)
		if old == nil {
			return nil, nil // made by setValue
		}
		p, err := r.x.File.Payload(old)
		v := r.copy.Value(t)
		if v != nil && r.choice.becomesHalf(v) {
			t.DataType = new(int32(r.choice.opts.To))
		}
		if err != nil || t.GetDataType() == old.GetDataType() {
			return p, err
		}
		tally := &Tally{}
		if v != nil {
			m.tallies[v.Path] = tally
		}
		t.RawData = nil
		made := &content{r.choice.opts.To, r.choice.opts.Clamp, tally}
		return made.of(p).Payload(), nil
	})
}

// constant changes a node of the copy that makes a constant which is not a value's tensor.
func (r *rewriting) constant(n *onnxpb.NodeProto) {
	value := graph.Attribute(n, "value")
	switch {
	case n.GetOpType() == "ConstantOfShape" && value == nil:
		r.setValue(n, []int64{1}, []float32{0})
	case n.GetOpType() == "ConstantOfShape":
		value.T.DataType = new(int32(r.choice.opts.To))
	case n.GetOpType() == "Constant" && value == nil:
		if a := graph.Attribute(n, "value_floats"); a != nil {
			r.setValue(n, []int64{int64(len(a.Floats))}, a.Floats)
		} else {
			r.setValue(n, nil, []float32{graph.Attribute(n, "value_float").GetF()})
		}
	}
}

// setValue replaces the attributes of a node by one: value, a tensor of half.
func (r *rewriting) setValue(n *onnxpb.NodeProto, dims []int64, x []float32) {
	t := &onnxpb.TensorProto{DataType: new(int32(r.choice.opts.To)), Dims: dims, RawData: make([]byte, 2*len(x))}
	(&content{to: r.choice.opts.To, clamp: r.choice.opts.Clamp, tally: &Tally{}}).encodeWithin(t.RawData, slices.Clone(x))
	n.Attribute = []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t}}
}
