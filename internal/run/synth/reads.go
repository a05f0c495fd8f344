package synth

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// graph is a model with its nodes by what they read, those in bodies among them.
type graph struct {
	file    *modelfile.Model
	proto   *onnxpb.GraphProto
	inputs  []*onnxpb.ValueInfoProto // without an initializer
	readers map[string][]*onnxpb.NodeProto
	makers  map[string]*onnxpb.NodeProto
	stored  map[string]*onnxpb.TensorProto
}

func newGraph(m *modelfile.Model) *graph {
	g := &graph{file: m, proto: m.Proto.GetGraph(), readers: map[string][]*onnxpb.NodeProto{}, makers: map[string]*onnxpb.NodeProto{}, stored: map[string]*onnxpb.TensorProto{}}
	g.inputs = execute.ModelInputs(g.proto)
	g.add(g.proto)
	return g
}

func (g *graph) add(p *onnxpb.GraphProto) {
	for _, t := range p.GetInitializer() {
		g.stored[t.GetName()] = t
	}
	for _, n := range p.GetNode() {
		for _, name := range n.Input {
			g.readers[name] = append(g.readers[name], n)
		}
		for _, name := range n.Output {
			g.makers[name] = n
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				g.add(a.G)
			}
			if a.T != nil && n.GetOpType() == "Constant" && len(n.Output) == 1 {
				g.stored[n.Output[0]] = a.T
			}
		}
	}
}

// mostRead bounds the elements of constants that are read.
const mostRead = 1 << 16

// numbers returns the elements of a small constant, or nil.
func (g *graph) numbers(name string) []float64 {
	t := g.stored[name]
	if t == nil {
		return nil
	}
	typ := dtype.DType(t.GetDataType())
	if n, err := execute.Elements(typ, t.GetDims()); err != nil || n == 0 || n > mostRead || !typ.Float() && !typ.Integer() {
		return nil
	}
	p, err := g.file.Payload(t)
	if err != nil || p == nil {
		return nil
	}
	v := &execute.Tensor{DType: typ, Dims: t.GetDims(), Data: make([]byte, p.Size())}
	if n, _ := p.ReadAt(v.Data, 0); n < len(v.Data) || int64(n) != int64(typ.Bytes(product(t.GetDims()))) {
		return nil
	}
	return v.Float64s()
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// use is a node that computes with an input, reached through light nodes.
type use struct {
	node  *onnxpb.NodeProto
	place int // the input of the node
	light []light
}

// light is arithmetic with a constant, on the way to a use.
type light struct {
	op     string
	second []float64 // the constant
}

// A value goes through these without becoming another kind of value.
var lightOperators = []string{"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Pad", "Slice", "Clip",
	"Concat", "Split", "Add", "Sub", "Mul", "Div", "Expand", "QuantizeLinear", "DequantizeLinear", "Max", "Min"}

// uses finds what the graph computes with a value.
func (g *graph) uses(name string) (found []use) {
	const most = 200 // values
	type way struct {
		name  string
		light []light
	}
	seen := map[string]bool{name: true}
	for todo := []way{{name: name}}; len(todo) > 0 && len(seen) < most; {
		w := todo[0]
		todo = todo[1:]
		for _, n := range g.readers[w.name] {
			place := slices.Index(n.Input, w.name)
			if !slices.Contains(lightOperators, n.GetOpType()) || place > 1 && n.GetOpType() != "Concat" {
				found = append(found, use{n, place, w.light})
				continue
			}
			next := w.light
			if arithmetic := slices.Contains([]string{"Add", "Sub", "Mul", "Div"}, n.GetOpType()); arithmetic && place < len(n.Input) && len(n.Input) == 2 {
				if second := g.numbers(n.Input[1-place]); second != nil {
					next = append(slices.Clone(next), light{n.GetOpType(), second})
				}
			}
			for _, out := range n.Output {
				if out != "" && !seen[out] {
					seen[out] = true
					todo = append(todo, way{out, next})
				}
			}
		}
	}
	return found
}

// rows returns the length of the smallest table that uses look up, or 0.
func (g *graph) rows(uses []use) (least int64) {
	for _, u := range uses {
		n := int64(0)
		switch op := u.node.GetOpType(); {
		case execute.Indexes(u.node) && u.place == 1:
			n = g.tableLength(u.node)
		case op == "OneHot" && u.place == 0 && len(u.node.Input) > 1:
			if depth := g.numbers(u.node.Input[1]); len(depth) == 1 {
				n = int64(depth[0])
			}
		}
		for _, l := range u.light { // such as positions that begin at 2
			if l.op == "Add" && len(l.second) == 1 && l.second[0] > 0 && int64(l.second[0]) < n {
				n -= int64(l.second[0])
			}
		}
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// tableLength returns the length of the table that a node indexes, or 0.
func (g *graph) tableLength(n *onnxpb.NodeProto) int64 {
	return execute.TableLength(n, func(name string) *onnxpb.TensorProto { return g.stored[name] }, func(name string) *onnxpb.NodeProto { return g.makers[name] })
}
