package compare

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// isSteady reports whether a value depends only on constants. Initializers that are graph inputs count
// as constants: their contents must be equal too.
func (m *matcher) isSteady(v *graph.Value) bool {
	if v == nil || v.Tensor == nil && v.Node == nil {
		return false
	}
	if v.Tensor != nil {
		return true
	}
	if known, ok := m.steady[v]; ok {
		return known
	}
	if m.depth++; m.depth > deepestMatch {
		m.depth--
		return false
	}
	defer func() { m.depth-- }()
	m.steady[v] = false // while it is computed
	steady := false
	if n := v.Node; !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetRefAttrName() != "" }) {
		index := m.a.Graph
		if index.Home(n) == nil {
			index = m.b.Graph
		}
		steady = !strings.HasPrefix(n.GetOpType(), "Random") && n.GetOpType() != "Bernoulli" && n.GetOpType() != "Multinomial" &&
			!slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(graph.Subgraphs(a)) > 0 }) &&
			!slices.ContainsFunc(index.Inputs(n), func(in *graph.Value) bool { return in != nil && !m.isSteady(in) })
	}
	m.steady[v] = steady
	return steady
}

// throughSwaps follows a value back through transposes of matrices, and of all matrices of a
// tensor, and through transposes that keep the order of the axes.
func throughSwaps(f *recognize.Recognizer, v *graph.Value, transposed bool) (*graph.Value, bool) {
	for v.Node != nil && v.Tensor == nil && graph.IsOperator(v.Node, "Transpose") {
		from := f.Graph.Source(v.Node, 0)
		perm := graph.Attribute(v.Node, "perm").GetInts()
		swaps := swapsLast(perm) || perm == nil && rankOf(f, from) == 2
		if from == nil || !swaps && !keepsOrder(perm) {
			break
		}
		v, transposed = from, transposed != swaps
	}
	return v, transposed
}

// swapsLast reports whether a permutation swaps the last two axes.
func swapsLast(perm []int64) bool {
	last := len(perm) - 1
	for i, p := range perm {
		switch {
		case i < last-1 && p != int64(i), i >= last-1 && p != int64(2*last-1-i):
			return false
		}
	}
	return len(perm) >= 2
}

// keepsOrder reports whether a permutation leaves all axes where they are.
func keepsOrder(perm []int64) bool {
	for i, p := range perm {
		if p != int64(i) {
			return false
		}
	}
	return len(perm) > 0
}

// swapped returns a shape with the last two axes swapped.
func swapped(shape []int64) []int64 {
	shape = slices.Clone(shape)
	if last := len(shape) - 1; last >= 1 {
		shape[last-1], shape[last] = shape[last], shape[last-1]
	}
	return shape
}

func rankOf(f *recognize.Recognizer, v *graph.Value) int {
	if c := f.Fold(v); c != nil {
		return len(c.Values.Shape)
	}
	return -1
}

// constants compares two values that depend on constants alone.
func (m *matcher) constants(at place, v, w *graph.Value, transposed bool) error {
	v, vt := throughSwaps(m.a, v, transposed)
	w, wt := throughSwaps(m.b, w, false)
	pair := pairing{v, w, vt != wt}
	if m.seen[pair] {
		return nil
	}
	m.seen[pair] = true
	m.depth++
	defer func() { m.depth-- }()
	if p := m.pair(w); p != nil && !m.decodes(v) && m.depth < deepestMatch {
		m.pass(p)
		return m.constants(at, v, p.Activation, vt != wt)
	}
	if vt == wt && m.cutAlike(v, w) && m.depth < deepestMatch {
		return m.chain(at, v.Node, w.Node)
	}
	x, y := m.a.Fold(v), m.b.Fold(w)
	if x == nil && y != nil { // an operator on codes replaced the nodes in between
		if from, c := m.a.Transposed(v); c != nil {
			v, x, vt = from, c, !vt
		}
	}
	if x == nil || y == nil {
		if v.Node != nil && w.Node != nil && v.Tensor == nil && w.Tensor == nil && vt == wt && sameOperator(v.Node, w.Node) && m.depth < deepestMatch &&
			slices.Index(m.a.Graph.Outputs(v.Node), v) == slices.Index(m.b.Graph.Outputs(w.Node), w) {
			return m.chain(at, v.Node, w.Node)
		}
		if v.Tensor != nil && w.Tensor != nil { // types that cannot be read as numbers, such as strings
			changes, err := m.changes("", v.Tensor, w.Tensor)
			if len(changes) > 0 {
				m.problem("%s: the constant %s differs", at, msg.Quote(v.Path))
			}
			return err
		}
		m.problem("%s: cannot tell whether %s equals %s", at, msg.Quote(w.Path), msg.Quote(v.Path))
		return nil
	}
	shape := x.Values.Shape
	if vt != wt {
		shape = swapped(shape)
	}
	switch {
	case x.Values.DType != y.Values.DType || !slices.Equal(shape, y.Values.Shape):
		m.problem("%s: %s is %v %v, was %v %v", at, msg.Quote(v.Path), y.Values.DType, y.Values.Shape, x.Values.DType, x.Values.Shape)
		return nil
	case !x.Values.DType.Float():
		same, err := m.equal(x, y)
		if err == nil && !same {
			m.problem("%s: the values of %s differ", at, msg.Quote(v.Path))
		}
		return err
	}
	return m.weights(v, w, x, y, vt != wt)
}

// cutAlike reports whether two values are the same output of the same Slice, Split or Concat, and
// weights that were quantized are among what it cuts. These are then compared, not the parts.
func (m *matcher) cutAlike(v, w *graph.Value) bool {
	return recognize.Cuts(v.Node) && recognize.Cuts(w.Node) && sameOperator(v.Node, w.Node) &&
		slices.Index(m.a.Graph.Outputs(v.Node), v) == slices.Index(m.b.Graph.Outputs(w.Node), w) && m.cutsQuantized(w)
}

// cutsQuantized reports whether a value of the second model is made of a quantized weight, by nodes
// that only move elements and by the codes of activations. It looks at each value once.
func (m *matcher) cutsQuantized(w *graph.Value) bool {
	seen := map[*graph.Value]bool{nil: true}
	for todo := []*graph.Value{w}; len(todo) > 0; {
		w, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if seen[w] {
			continue
		}
		seen[w] = true
		if _, quantized := m.names[keyOfValue(w)]; quantized {
			return true
		}
		if w.Node == nil {
			continue
		}
		if p := m.pair(w); p != nil {
			todo = append(todo, p.Activation)
		} else if recognize.Cuts(w.Node) || recognize.Reshapes(w.Node) || recognize.Transposes(w.Node) {
			todo = append(todo, m.b.Graph.Inputs(w.Node)...)
		}
	}
	return false
}

// chain compares two nodes that cannot be folded, by their attributes and inputs.
func (m *matcher) chain(at place, x, y *onnxpb.NodeProto) error {
	if err := m.attributes(at.String()+": ", x, y); err != nil {
		return err
	}
	for i := range max(len(x.Input), len(y.Input)) {
		v, w := m.a.Graph.Source(x, i), m.b.Graph.Source(y, i)
		switch {
		case v == nil && w == nil:
		case v == nil || w == nil:
			m.problem("%s: %s: only one model has input %d", at, graph.Describe(x), i)
		default:
			if err := m.constants(at, v, w, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// equal compares two constants: their bytes if both are stored, else their elements.
func (m *matcher) equal(x, y *recognize.Constant) (bool, error) {
	if x.Values.Stored != nil && y.Values.Stored != nil {
		size := x.Values.DType.Bytes(x.Values.Size())
		if size != y.Values.DType.Bytes(y.Values.Size()) {
			return false, nil
		}
		const stretch = 1 << 20
		var a, b []byte
		for off := int64(0); off < size; off += stretch {
			n := min(stretch, size-off)
			p, q := buffer.Grow(&a, n), buffer.Grow(&b, n)
			if err := cmp.Or(buffer.ReadFull(x.Values.Stored, p, off), buffer.ReadFull(y.Values.Stored, q, off)); err != nil || !bytes.Equal(p, q) {
				return false, err
			}
			m.count(n)
		}
		return true, nil
	}
	e := &measurement{x: x.Values, y: y.Values, blocks: oneBlock(x.Values.Shape)}
	err := m.measure(e)
	return err == nil && e.all.SumSqErr == 0 && e.broken == 0, err
}
