package kvcache

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// ErrCache is wrapped by errors about caches that cannot become int8, and ErrNone by those about models without a cache.
var (
	ErrCache = errors.New("key-value cache")
	ErrNone  = errors.New("no key-value cache")
)

// Cache is a key-value cache of a model.
type Cache struct {
	Input, Output string // of the model
	Operator      string // that extends it, as graph.Operator names it

	Heads int64 // the number of heads, on axis 1 of 4; 0: not known
	size  int64 // channels of a head; 0: not known

	rotation rotation // of keys

	node       int   // the operator, in the main graph
	in, out    int   // its input and output
	before     []int // Casts and Identities between Input and the operator, in the main graph
	behind     []int // the same up to Output
	was, inner dtype.DType
	merged     bool // branches of an If read it
}

// Names of operators.
const (
	groupQuery = "com.microsoft.GroupQueryAttention"
	concat     = "Concat"
)

// extenders are the operators that extend caches: by input, the output with the longer cache.
var extenders = map[string]map[int]int{
	groupQuery:                         {3: 1, 4: 2},
	"com.microsoft.MultiHeadAttention": {6: 1, 7: 2},
	"Attention":                        {4: 1, 5: 2},
}

// use is a reader of a value in the main graph.
type use struct{ node, input int }

// scene is a main graph, by the names of its values.
type scene struct {
	g       *onnxpb.GraphProto
	readers map[string][]use
	inside  map[string]bool // values that bodies of nodes read
	outputs map[string]bool // of the model
	makers  map[string]int
}

func newScene(g *onnxpb.GraphProto) *scene {
	s := &scene{g: g, readers: map[string][]use{}, inside: map[string]bool{}, outputs: map[string]bool{}, makers: map[string]int{}}
	for i, n := range g.Node {
		for k, name := range n.Input {
			if name != "" {
				s.readers[name] = append(s.readers[name], use{i, k})
			}
		}
		for _, name := range graph.Reads(n) {
			if !slices.Contains(n.Input, name) {
				s.inside[name] = true
			}
		}
		for _, name := range n.Output {
			s.makers[name] = i
		}
	}
	for _, o := range g.Output {
		s.outputs[o.GetName()] = true
	}
	return s
}

// Find finds the caches of a model that are floats. A cache that cannot become int8 is an error, and so is a model without one.
func Find(m *onnxpb.ModelProto) ([]Cache, error) {
	s := newScene(m.Graph)
	var found []Cache
	coded := 0
	for _, in := range graph.RuntimeInputs(m.Graph) {
		typ := typeOf(in)
		if typ == dtype.Int8 {
			coded++
		}
		if !typ.Float() {
			continue
		}
		c, why := s.cache(in)
		switch {
		case why == "":
			found = append(found, c)
		case c.Output != "" || s.likely(in):
			return nil, fmt.Errorf("%w: input %s: %s; it cannot become int8%s", ErrCache, msg.Quote(in.GetName()), why, s.advice(in))
		}
	}
	if len(found) == 0 && coded > 0 {
		return nil, fmt.Errorf("%w of floats: the model has int8 inputs, so its cache may be quantized already", ErrNone)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the model has no input that an operator extends and an output returns", ErrNone)
	}
	return found, checkPairs(found)
}

// Values lists the values of the main graph that are caches as floats: inputs, outputs, and what is in between up to the
// operators.
func Values(m *onnxpb.ModelProto) (all []string, err error) {
	caches, err := Find(m)
	for _, c := range caches {
		all = append(all, c.Input, m.Graph.Node[c.node].Output[c.out])
		for _, i := range slices.Concat(c.before, c.behind) {
			all = append(all, m.Graph.Node[i].Output[0])
		}
	}
	return all, err
}

// checkPairs refuses a GroupQueryAttention of which only the keys or only the values are a cache.
func checkPairs(all []Cache) error {
	for _, c := range all {
		same := func(d Cache) bool { return d.node == c.node && d.in != c.in }
		if c.Operator == groupQuery && !slices.ContainsFunc(all, same) {
			return fmt.Errorf("%w: input %s: GroupQueryAttention needs keys and values of one type, and only one of them is a cache of the model", ErrCache, msg.Quote(c.Input))
		}
	}
	return nil
}

func typeOf(v *onnxpb.ValueInfoProto) dtype.DType {
	return dtype.DType(v.GetType().GetTensorType().GetElemType())
}

func dimsOf(v *onnxpb.ValueInfoProto) []*onnxpb.TensorShapeProto_Dimension {
	return v.GetType().GetTensorType().GetShape().GetDim()
}

// likely reports whether an input that is not recognized would still be a cache: by its name, or by what reads it.
func (s *scene) likely(in *onnxpb.ValueInfoProto) bool {
	name := strings.ToLower(in.GetName())
	if len(dimsOf(in)) >= 3 && (strings.Contains(name, "past") || strings.Contains(name, "cache")) {
		return true
	}
	return slices.ContainsFunc(s.readers[in.GetName()], func(u use) bool {
		_, extended := extenders[graph.Operator(s.g.Node[u.node])][u.input]
		return extended
	})
}

// advice is what to do about a cache of an encoder's keys and values that the model only reads: another model makes it.
func (s *scene) advice(in *onnxpb.ValueInfoProto) string {
	if s.inside[in.GetName()] || !strings.Contains(in.GetName(), "encoder") && !strings.Contains(in.GetName(), "cross") {
		return ""
	}
	return ": the model that makes this cache would need the same scales; convert a merged decoder, such as decoder_model_merged.onnx of Optimum"
}

// passes reports whether a node hands a value on unchanged, up to its type.
func passes(n *onnxpb.NodeProto) bool {
	return (graph.IsOperator(n, "Cast") || graph.IsOperator(n, "Identity")) && graph.FirstOutput(n) != ""
}

// numbers lists the readers of a value that read its numbers.
func (s *scene) numbers(name string) []use {
	return slices.DeleteFunc(slices.Clone(s.readers[name]), func(u use) bool { return graph.NoNumbers(s.g.Node[u.node].GetOpType()) })
}

// cache follows an input to the operator that extends it, and on to an output. Else it says why not.
func (s *scene) cache(in *onnxpb.ValueInfoProto) (c Cache, why string) {
	c = Cache{Input: in.GetName(), was: typeOf(in), inner: typeOf(in)}
	name := c.Input
	for {
		if s.inside[name] && name == c.Input {
			why = s.merged(&c, in)
			return c, why
		}
		if s.inside[name] {
			return c, "the body of a node reads it"
		}
		uses := s.numbers(name)
		if len(uses) == 1 && passes(s.g.Node[uses[0].node]) {
			c.before = append(c.before, uses[0].node)
			n := s.g.Node[uses[0].node]
			if graph.IsOperator(n, "Cast") {
				c.inner = dtype.DType(graph.IntAttribute(n, "to"))
			}
			name = n.Output[0]
			continue
		}
		var err string
		if err = s.extended(&c, in, uses); err != "" {
			return c, err
		}
		break
	}
	n := s.g.Node[c.node]
	if len(n.Output) <= c.out || n.Output[c.out] == "" {
		return c, fmt.Sprintf("%s returns no longer cache", graph.Describe(n))
	}
	if c.Output, c.behind = s.returned(n.Output[c.out], 0); c.Output == "" {
		return c, fmt.Sprintf("the longer cache of %s is no output", graph.Describe(n))
	}
	return c, s.private(c)
}

// extended finds the operator that extends the cache among the readers of its value.
func (s *scene) extended(c *Cache, in *onnxpb.ValueInfoProto, uses []use) (why string) {
	found := 0
	for _, u := range uses {
		out, extends := s.extends(u)
		if rank := len(dimsOf(in)); extends && (rank == 0 || rank >= 3) {
			found++
			c.node, c.in, c.out, c.Operator = u.node, u.input, out, graph.Operator(s.g.Node[u.node])
		}
	}
	switch {
	case len(uses) == 0:
		return "nothing reads it"
	case found == 0:
		return fmt.Sprintf("%s reads it, which extends no cache", graph.Describe(s.g.Node[uses[0].node]))
	case found > 1:
		return "several operators extend it"
	case c.Operator == groupQuery && len(uses) > 1:
		return "GroupQueryAttention and other operators read it"
	}
	n, dims := s.g.Node[c.node], dimsOf(in)
	switch axis := graph.IntAttribute(n, "axis"); {
	case c.Operator == groupQuery:
		c.Heads = graph.IntAttribute(n, "kv_num_heads")
		if c.in == 3 {
			c.rotation = s.rotationOf(n)
		}
	case len(dims) == 4 && (c.Operator != concat || axis == 2 || axis == -2):
		c.Heads = dims[1].GetDimValue()
	}
	if len(dims) == 4 {
		c.size = max(dims[3].GetDimValue(), 0)
	}
	return ""
}

// extends reports whether a reader extends what it reads, and the output with the result.
func (s *scene) extends(u use) (out int, ok bool) {
	n := s.g.Node[u.node]
	if graph.Operator(n) == concat {
		return 0, u.input == 0 && len(n.Input) == 2
	}
	out, ok = extenders[graph.Operator(n)][u.input]
	return out, ok
}

// mostPassed bounds the Casts between an operator and an output.
const mostPassed = 8

// returned follows a value to an output of the model.
func (s *scene) returned(name string, steps int) (output string, through []int) {
	if s.outputs[name] {
		return name, nil
	}
	for _, u := range s.readers[name] {
		if n := s.g.Node[u.node]; passes(n) && steps < mostPassed {
			if output, rest := s.returned(n.Output[0], steps+1); output != "" {
				return output, append([]int{u.node}, rest...)
			}
		}
	}
	return "", nil
}

// private says what else reads a value that becomes codes, or "".
func (s *scene) private(c Cache) string {
	if s.inside[c.Output] {
		return fmt.Sprintf("the body of a node reads the output %s", msg.Quote(c.Output))
	}
	if c.Operator != groupQuery {
		return ""
	}
	name := s.g.Node[c.node].Output[c.out]
	for _, next := range append(slices.Clone(c.behind), -1) {
		for _, u := range s.numbers(name) {
			if u.node != next {
				return fmt.Sprintf("%s reads the longer cache as floats", graph.Describe(s.g.Node[u.node]))
			}
		}
		if s.inside[name] {
			return "the body of a node reads the longer cache as floats"
		}
		if next >= 0 {
			name = s.g.Node[next].Output[0]
		}
	}
	return ""
}
