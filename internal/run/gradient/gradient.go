// Package gradient computes how the outputs of a float model change with its weights: reverse mode over the nodes
// of its main graph.
//
// [Open] gets the path of a model and the names of stored tensors. [Model.Step] gets samples, and other elements for
// these tensors. It compares the outputs with those of the model itself, and hands on the gradient of that loss
// by each tensor. The pure Go engine computes the values. A table (rules.go) has a rule for each operator, which
// turns the gradients of outputs into those of inputs.
//
// The graph is cut into stages. Only the values that cross a cut are in memory for all samples of a step. A stage
// runs again when its gradients are due. So memory is that of these values, and of one stage: all its values for
// one sample, its weights and their gradients. Outputs of the model itself are kept, up to 256 MiB: they stay the same.
package gradient

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/op"
)

// Model is a float model that is open. It is not for concurrent use.
type Model struct {
	session *evaluate.Session
	nodes   []evaluate.Node
	names   []string              // of the tensors
	tensors []*onnxpb.TensorProto // initializers, or contents of Constant nodes
	outputs []string
	kinds   []kind // of the outputs; nil before the first step
	values  *values
	stages  []*stage // nil before the first step

	float map[int]map[string]*execute.Tensor // outputs of the model itself, by the numbers of samples
	room  int                                // bytes that float may still take
}

// keptOutputs is how many bytes the outputs of the model itself may take.
const keptOutputs = 256 << 20

// Sample has the inputs of the model. Those of a number are always the same.
type Sample struct {
	Number int
	Inputs []*execute.Tensor
}

// Weights are other elements of tensors, and take their gradients. Neither keeps the slices.
type Weights interface {
	// Elements sets x to the elements of tensor i.
	Elements(i int, x []float32) error
	// Gradient takes the gradient of the loss by the elements of tensor i. A tensor that several stages read has
	// several, which add up.
	Gradient(i int, g []float32) error
}

// Open opens the model at path for gradients by some stored tensors of its main graph. An error that wraps
// execute.ErrUnsupported says that an operator has no rule.
func Open(ctx context.Context, path string, tensors []string) (*Model, error) {
	s, err := evaluate.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	m := &Model{session: s, nodes: s.Nodes(), float: map[int]map[string]*execute.Tensor{}, room: keptOutputs}
	if err := m.prepare(tensors); err != nil {
		s.Close()
		return nil, err
	}
	return m, nil
}

// Close closes the model.
func (m *Model) Close() { m.session.Close() }

func (m *Model) prepare(tensors []string) error {
	g := m.session.Graph()
	for _, name := range tensors {
		t := storedTensor(g, name)
		if t == nil {
			return op.Unsupported("%q is no stored tensor of the main graph", name)
		}
		m.names, m.tensors = append(m.names, name), append(m.tensors, t)
	}
	for _, o := range g.GetOutput() {
		m.outputs = append(m.outputs, o.GetName())
	}
	m.values = newValues(m, tensors)
	return m.checkRules()
}

// storedTensor finds a tensor by the name of its value.
func storedTensor(g *onnxpb.GraphProto, name string) *onnxpb.TensorProto {
	for _, t := range g.Initializer {
		if t.GetName() == name {
			return t
		}
	}
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			if n.GetOpType() == "Constant" && slices.Equal(n.Output, []string{name}) {
				return a.GetT()
			}
		}
	}
	return nil
}

// key is the name of an operator in the table of rules.
func key(n *onnxpb.NodeProto) string {
	if d := n.GetDomain(); d != "" && d != "ai.onnx" {
		return d + ":" + n.GetOpType()
	}
	return n.GetOpType()
}

// checkRules returns an error if a node that hands on gradients has no rule.
func (m *Model) checkRules() error {
	reaches := newSet(m.outputs) // values with a gradient
	for _, n := range slices.Backward(m.nodes) {
		if !slices.ContainsFunc(n.Output, reaches.has) || !slices.ContainsFunc(n.Reads, m.values.active.has) || flat[key(n.NodeProto)] {
			continue
		}
		if rules[key(n.NodeProto)] == nil {
			return op.Unsupported("the gradient of operator %s", n.GetOpType())
		}
		reaches.add(n.Reads...)
	}
	return nil
}

// Step runs the model with weights on samples, and compares its outputs with those of the model itself. It returns
// the mean loss of the samples. With gradients, the weights get theirs.
func (m *Model) Step(samples []Sample, w Weights, gradients bool) (float64, error) {
	if len(samples) == 0 {
		return 0, nil
	}
	if m.stages == nil {
		if err := m.cut(samples[0].Inputs, len(samples)); err != nil {
			return 0, err
		}
	}
	s := &pass{Model: m, weights: w, alone: !gradients}
	for _, of := range samples {
		one := &sample{float: map[string]*execute.Tensor{}, student: map[string]*execute.Tensor{}}
		if known := m.float[of.Number]; known != nil {
			one.float, one.known = known, true
		}
		for _, t := range of.Inputs {
			if t != nil {
				one.student[t.Name] = t
				if !one.known {
					one.float[t.Name] = t
				}
			}
		}
		s.samples = append(s.samples, one)
	}
	loss, err := s.run()
	for i, one := range s.samples {
		if err == nil && !one.known {
			m.keep(samples[i].Number, one.float)
		}
	}
	return loss, err
}

// keep keeps the outputs that are compared, if there is room.
func (m *Model) keep(number int, values map[string]*execute.Tensor) {
	outputs, bytes := map[string]*execute.Tensor{}, 0
	for i, name := range m.outputs {
		if t := values[name]; t != nil && m.kinds[i] != ignored {
			outputs[name], bytes = t, bytes+t.Len()*t.Size()
		}
	}
	if m.float[number] == nil && bytes <= m.room {
		m.float[number], m.room = outputs, m.room-bytes
	}
}

// sample has the values of a sample that are known: those of the model itself, and those with other weights.
type sample struct {
	float, student map[string]*execute.Tensor
	known          bool                 // the outputs of the model itself are in float
	gradients      map[string][]float32 // of the values with other weights
}

// pass is a Step.
type pass struct {
	*Model
	weights Weights
	samples []*sample
	alone   bool // the loss is wanted alone
}

// run computes the loss and, if wanted, the gradients.
func (p *pass) run() (loss float64, err error) {
	last := len(p.stages) - 1
	for i, g := range p.stages {
		if err := p.forward(g, i < last || p.alone); err != nil {
			return 0, err
		}
	}
	if p.alone {
		for _, one := range p.samples {
			l, _, err := p.compare(one, one.student, false)
			if err != nil {
				return 0, err
			}
			loss += l
		}
		return loss / float64(len(p.samples)), nil
	}
	for i, g := range slices.Backward(p.stages) {
		l, err := p.backward(g, i == last)
		if err != nil {
			return 0, err
		}
		loss += l
	}
	return loss / float64(len(p.samples)), nil
}

// forward runs a stage of the model itself and, if wanted, with other weights.
func (p *pass) forward(g *stage, student bool) error {
	var weights map[string]*execute.Tensor
	if student {
		var err error
		if weights, err = p.load(g); err != nil {
			return err
		}
	}
	for _, one := range p.samples {
		if !one.known {
			found, err := p.session.Part(one.float, g.exit)
			if err != nil {
				return err
			}
			for i, name := range g.exit {
				one.float[name] = found[i]
			}
			for _, name := range g.done {
				delete(one.float, name)
			}
		}
		if !student {
			continue
		}
		found, err := p.session.Part(given(one.student, weights), g.exit)
		if err != nil {
			return err
		}
		for i, name := range g.exit {
			one.student[name] = found[i]
		}
		if p.alone {
			for _, name := range g.done {
				delete(one.student, name)
			}
		}
	}
	return nil
}

// given is the union of two sets of values.
func given(a, b map[string]*execute.Tensor) map[string]*execute.Tensor {
	all := make(map[string]*execute.Tensor, len(a)+len(b))
	for name, t := range a {
		all[name] = t
	}
	for name, t := range b {
		all[name] = t
	}
	return all
}

// load returns the other elements of a stage's weights.
func (p *pass) load(g *stage) (map[string]*execute.Tensor, error) {
	all := map[string]*execute.Tensor{}
	for _, i := range g.weights {
		t := p.tensors[i]
		x := make([]float32, op.Product(t.GetDims()))
		if err := p.weights.Elements(i, x); err != nil {
			return nil, err
		}
		var v *execute.Tensor
		if typ := dtype.DType(t.GetDataType()); typ == dtype.Float32 {
			v = execute.Made(typ, t.GetDims(), x)
		} else {
			var err error
			if v, err = execute.FromFloat32s(typ, t.GetDims(), x); err != nil {
				return nil, err
			}
		}
		all[p.names[i]] = v
	}
	return all, nil
}

// backward runs a stage again, and hands the gradients of its values back. In the last stage, they come from the
// loss, which is returned.
func (p *pass) backward(g *stage, last bool) (loss float64, err error) {
	weights, err := p.load(g)
	if err != nil {
		return 0, err
	}
	sums := make([][]float32, len(g.weights))
	for _, one := range p.samples {
		known := given(one.student, weights)
		found, err := p.session.Part(known, g.tape)
		if err != nil {
			return 0, err
		}
		for i, name := range g.tape {
			known[name] = found[i]
		}
		if last {
			l, gradients, err := p.compare(one, known, true)
			if err != nil {
				return 0, err
			}
			loss += l
			one.gradients = gradients
		}
		if err := p.hand(g, known, one.gradients); err != nil {
			return 0, err
		}
		for k, i := range g.weights {
			name := p.names[i]
			if d := one.gradients[name]; d != nil {
				if sums[k] == nil {
					sums[k] = make([]float32, len(d))
				}
				addTo(sums[k], d)
				delete(one.gradients, name)
			}
		}
		for _, name := range g.exit {
			delete(one.gradients, name)
			delete(one.student, name)
		}
	}
	for k, i := range g.weights {
		if sums[k] == nil {
			continue
		}
		scale(sums[k], 1/float32(len(p.samples)))
		if err := p.weights.Gradient(i, sums[k]); err != nil {
			return 0, err
		}
	}
	return loss, nil
}

func addTo(sum, x []float32) {
	for i, v := range x {
		sum[i] += v
	}
}

// hand computes the gradients of what a stage reads from those of what it makes.
func (p *pass) hand(g *stage, known map[string]*execute.Tensor, gradients map[string][]float32) error {
	for _, n := range slices.Backward(p.nodes[g.from:g.to]) {
		made := func(name string) bool { return gradients[name] != nil }
		if slices.ContainsFunc(n.Output, made) && slices.ContainsFunc(n.Input, p.values.active.has) && !flat[key(n.NodeProto)] {
			if err := p.node(n.NodeProto, known, gradients); err != nil {
				return fmt.Errorf("the gradient of %s node %q: %w", n.GetOpType(), n.GetName(), err)
			}
		}
		for _, name := range n.Output {
			delete(gradients, name)
		}
	}
	return nil
}

// node computes the gradients of a node's inputs. Without elements of outputs there are none.
func (p *pass) node(proto *onnxpb.NodeProto, known map[string]*execute.Tensor, gradients map[string][]float32) error {
	in := make([]*execute.Tensor, len(proto.Input))
	n := &node{wants: make([]bool, len(in)), dx: make([][]float32, len(in))}
	for i, name := range proto.Input {
		if in[i] = known[name]; in[i] != nil && name != "" {
			n.wants[i] = p.values.active.has(name) && in[i].IsFloat()
		}
	}
	for _, name := range proto.Output {
		t := known[name]
		if d := gradients[name]; t != nil && d != nil && len(d) != t.Len() {
			return fmt.Errorf("%d gradients for %d elements", len(d), t.Len())
		}
		n.out, n.dy = append(n.out, t), append(n.dy, gradients[name])
	}
	if !slices.ContainsFunc(n.dy, func(d []float32) bool { return len(d) > 0 }) {
		return nil
	}
	if n.dy[0] == nil && len(n.dy) > 1 && !severalOutputs[key(proto)] {
		return op.Unsupported("the gradient of other outputs than the first")
	}
	n.Call = p.session.Call(proto, in)
	if err := rules[key(proto)](n); err != nil {
		return err
	}
	for i, name := range proto.Input {
		if n.dx[i] == nil {
			continue
		}
		if sum := gradients[name]; sum == nil {
			if n.shares(i) {
				n.dx[i] = slices.Clone(n.dx[i])
			}
			gradients[name] = n.dx[i]
		} else {
			addTo(sum, n.dx[i])
		}
	}
	return nil
}

func copyOf(n *onnxpb.NodeProto) *onnxpb.NodeProto { return proto.CloneOf(n) }
