// Package transformer finds what weights are for in a transformer, by the structure of its graph. Names
// of nodes and tensors do not matter.
//
//	roles := role.Of(graph)
//	roles["onnx::MatMul_812"] // {Role: role.Down, Layer: 3, Layers: 24}
package transformer

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Role is the role of a weight in a transformer.
type Role string

const (
	Head  Role = "head"  // its product gives the logits
	Value Role = "value" // its product gives the values of attention, and perhaps queries and keys
	Down  Role = "down"  // its product ends a feed-forward part: it reads what other products make, element by element
)

// Roles lists all roles.
var Roles = []Role{Head, Value, Down}

// Weight is a weight with a role.
type Weight struct {
	Role   Role
	Layer  int // of Layers, from 0 on; a head is in none
	Layers int
}

// HasAttention reports whether a model is a transformer, by its structure.
func HasAttention(x *graph.Graph) bool {
	for _, w := range Of(x) {
		if w.Role == Value {
			return true
		}
	}
	return false
}

// Of returns the weights of the main graph, and of the branches of Ifs in it, that have a role, by
// path. Without attention there are no layers, and only a head.
func Of(x *graph.Graph) map[string]Weight {
	f := &finder{x: x, depth: make([]int, x.Nodes()+1), seen: make([]int, x.Nodes()+1)}
	found := map[string]Weight{}
	f.layers(x.File.Proto.GetGraph())
	if len(f.values.weights) > 0 {
		f.downs.number(found, Down)
		f.values.number(found, Value) // also where a model has no normalization in front of them
	}
	for _, w := range f.heads() {
		found[w.Path] = Weight{Role: Head}
	}
	return found
}

// layers finds the weights of layers in a graph, and in the branches of its Ifs. Branches that compute
// the same in two ways, such as with and without a cache, have the same layers.
func (f *finder) layers(g *onnxpb.GraphProto) {
	nodes, err := graph.Ordered(g.GetNode())
	if err != nil {
		return
	}
	for _, n := range nodes {
		depth := f.deepest(f.x.Inputs(n))
		for _, branch := range branches(n) {
			f.layers(branch)
			depth = max(depth, f.deepest(f.x.Returned[branch]))
		}
		if v := f.attended(n); v != nil {
			f.values.add(depth, f.origins(v, carriers)...)
			depth++
		}
		f.depth[f.x.Number(n)] = depth
		if w := f.weight(n); w != nil && f.endsPart(n) {
			f.downs.add(depth, w)
		}
	}
}

// deepest returns the number of attentions up to some values.
func (f *finder) deepest(values []*graph.Value) (depth int) {
	for _, v := range values {
		if v != nil && v.Node != nil {
			depth = max(depth, f.depth[f.x.Number(v.Node)])
		}
	}
	return depth
}

// branches returns the graphs of an If.
func branches(n *onnxpb.NodeProto) (graphs []*onnxpb.GraphProto) {
	if n.GetOpType() == "If" {
		for _, a := range n.Attribute {
			graphs = append(graphs, graph.Subgraphs(a)...)
		}
	}
	return graphs
}

// returned returns the values that the branches of an If return for one of its outputs; nil for other
// nodes.
func (f *finder) returned(v *graph.Value) (values []*graph.Value) {
	for _, branch := range branches(v.Node) {
		i := slices.Index(f.x.Outputs(v.Node), v)
		if all := f.x.Returned[branch]; i >= 0 && i < len(all) && all[i] != nil {
			values = append(values, all[i])
		}
	}
	return values
}

// layers are weights with the number of attentions that come before.
type layers struct {
	weights []*graph.Value
	depths  []int
}

func (l *layers) add(depth int, weights ...*graph.Value) {
	for _, w := range weights {
		l.weights, l.depths = append(l.weights, w), append(l.depths, depth)
	}
}

// number sets the role and the number of the layer of each weight. Weights of equal depth are in one
// layer. A weight of several layers belongs to the first.
func (l *layers) number(found map[string]Weight, role Role) {
	distinct := slices.Clone(l.depths)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	for i, w := range slices.Backward(l.weights) {
		layer, _ := slices.BinarySearch(distinct, l.depths[i])
		found[w.Path] = Weight{Role: role, Layer: layer, Layers: len(distinct)}
	}
}

// finder walks a graph, against its direction.
type finder struct {
	x *graph.Graph

	values, downs layers

	depth []int // by node: attentions up to it
	seen  []int // by node: the last walk that came there
	walk  int   // number of the walk
}

// Operators that a walk passes. All but those in firstInput hand on any of their inputs.
var (
	firstInput = []string{"Cast", "Dropout", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}

	// carriers bring values to where they are attended to.
	carriers = append([]string{"Add", "Concat", "Mul", "ScatterElements", "ScatterND", "TensorScatter", "Where"}, firstInput...)

	// elementwise operators make activations and gates of what products make.
	elementwise = append([]string{
		"Add", "BiasGelu", "BiasSplitGelu", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "Mish",
		"Mul", "Neg", "PRelu", "Pow", "QuickGelu", "Relu", "Selu", "Sigmoid", "SiLU", "Softplus", "Sub", "Swish", "Tanh", "ThresholdedRelu", "Where",
	}, firstInput...)
)

// weight returns the weight that a node multiplies by, or nil.
func (f *finder) weight(n *onnxpb.NodeProto) *graph.Value {
	switch n.GetOpType() {
	case "MatMul", "Gemm", "FusedMatMul":
		return f.stored(f.x.Source(n, 1))
	}
	return nil
}

// stored returns the tensor that a value comes from, or nil.
func (f *finder) stored(v *graph.Value) *graph.Value {
	for v != nil && v.Tensor == nil {
		if v.Node == nil || !slices.Contains([]string{"Cast", "Identity", "Reshape", "Transpose"}, v.Node.GetOpType()) {
			return nil
		}
		v = f.x.Source(v.Node, 0)
	}
	return v
}

// origins walks back from a value through the given operators, and returns the weights of the products
// where the walk ends.
func (f *finder) origins(v *graph.Value, through []string) (weights []*graph.Value) {
	if v.Tensor != nil { // of an operator that multiplies by it
		return []*graph.Value{v}
	}
	f.back(v, through, func(n *onnxpb.NodeProto) bool {
		if w := f.weight(n); w != nil {
			weights = append(weights, w)
		}
		return true
	})
	return weights
}

// farthest is the number of values after which a walk gives up: parts of layers are small.
const farthest = 1000

// back walks back from a computed value through the given operators. It calls end for each other node,
// with nil for inputs of the graph or if it gives up. It stops if end returns false.
func (f *finder) back(v *graph.Value, through []string, end func(n *onnxpb.NodeProto) bool) {
	f.walk++
	steps := 0
	for open := []*graph.Value{v}; len(open) > 0; steps++ {
		if steps == farthest {
			end(nil)
			return
		}
		v, open = open[len(open)-1], open[:len(open)-1]
		switch n := v.Node; {
		case v.Tensor != nil:
		case n == nil:
			if !end(nil) {
				return
			}
		case len(branches(n)) > 0: // each output has its own way
			open = append(open, f.returned(v)...)
		case f.seen[f.x.Number(n)] == f.walk:
		case !slices.Contains(through, n.GetOpType()) || f.looksUp(n):
			f.seen[f.x.Number(n)] = f.walk
			if !end(n) {
				return
			}
		default:
			f.seen[f.x.Number(n)] = f.walk
			open = append(open, f.handedOn(n)...)
		}
	}
}

// looksUp reports whether a node reads rows of a stored table, as embeddings are.
func (f *finder) looksUp(n *onnxpb.NodeProto) bool {
	return n.GetOpType() == "Gather" && f.stored(f.x.Source(n, 0)) != nil
}

// handedOn returns the inputs whose elements a node hands on.
func (f *finder) handedOn(n *onnxpb.NodeProto) (inputs []*graph.Value) {
	for i, v := range f.x.Inputs(n) {
		if v != nil && (i == 0 || !slices.Contains(firstInput, n.GetOpType())) {
			inputs = append(inputs, v)
		}
	}
	return inputs
}

// attended returns the values that an attention sums up, or the weight that makes them; nil if the
// node is no attention.
func (f *finder) attended(n *onnxpb.NodeProto) *graph.Value {
	switch op := n.GetOpType(); {
	case op == "Attention" && n.GetDomain() == graph.Contrib:
		return f.x.Source(n, 1)
	case slices.Contains([]string{"Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MultiHeadAttention", "PagedAttention", "SparseAttention"}, op):
		for i := 2; i >= 0; i-- { // or they are packed with keys, or with keys and queries
			if v := f.x.Source(n, i); v != nil {
				return v
			}
		}
	case op == "MatMul" && f.weight(n) == nil && f.isSoftmax(f.x.Source(n, 0)):
		return f.x.Source(n, 1)
	}
	return nil
}

// isSoftmax reports whether a Softmax makes a value.
func (f *finder) isSoftmax(v *graph.Value) (is bool) {
	if v != nil {
		f.back(v, []string{"Cast", "Dropout", "Identity", "Reshape", "Where"}, func(n *onnxpb.NodeProto) bool {
			is = is || n != nil && n.GetOpType() == "Softmax"
			return true
		})
	}
	return is
}

// endsPart reports whether a product reads only elementwise combinations of other products: no
// normalization, and no attention.
func (f *finder) endsPart(n *onnxpb.NodeProto) bool {
	ends := false
	if v := f.x.Source(n, 0); v != nil {
		f.back(v, elementwise, func(n *onnxpb.NodeProto) bool {
			ends = n != nil && f.weight(n) != nil
			return ends
		})
	}
	return ends
}

// heads returns the weights of the products that give the logits, the first output: one in each
// branch that does.
func (f *finder) heads() (weights []*graph.Value) {
	g := f.x.File.Proto.GetGraph()
	outputs := f.x.Returned[g]
	if len(outputs) == 0 {
		return nil
	}
	open := []*graph.Value{outputs[max(slices.IndexFunc(g.Output, func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == "logits" }), 0)]}
	for steps := 0; len(open) > 0 && steps < farthest; steps++ {
		v := open[len(open)-1]
		open = open[:len(open)-1]
		switch {
		case v == nil || v.Node == nil:
		case len(branches(v.Node)) > 0:
			open = append(open, f.returned(v)...)
		case f.weight(v.Node) != nil:
			weights = append(weights, f.weight(v.Node))
		default:
			open = append(open, f.before(v.Node))
		}
	}
	return weights
}

// before returns the logits to which a node applies a bias, a scale or a limit, or nil.
func (f *finder) before(n *onnxpb.NodeProto) *graph.Value {
	if !slices.Contains(elementwise, n.GetOpType()) {
		return nil
	}
	inputs := slices.DeleteFunc(f.handedOn(n), func(v *graph.Value) bool { return f.stored(v) != nil })
	if len(inputs) != 1 {
		return nil // of two computed values none is the logits
	}
	return inputs[0]
}
