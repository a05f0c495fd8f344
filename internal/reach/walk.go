package reach

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Leaf is a use of a tensor by an operator that computes with it. Nodes in between, such
// as Transpose, only pass the tensor on.
type Leaf struct {
	graph.Use
	Passage
}

// Passage describes the way from the stored tensor to a use.
type Passage struct {
	Layout layout              // how the stored elements appear there
	Cast   bool                // a Cast lies on the way
	Call   bool                // the way enters or leaves a function
	Held   bool                // the way enters or leaves a graph in a Loop, Scan or If that hands it on
	Via    []*onnxpb.NodeProto // nodes that pass it on, since the last call or such graph
}

// Operand returns how the operator sums over the stored tensor of the given shape, and
// whether the tensor is a weight there. why explains an unknown axis, or why this is no
// weight.
func (l Leaf) Operand(shape []int64) (o Operand, weight bool, why string) {
	row := OperatorOf(l.Use)
	if row == nil {
		return o, false, ""
	}
	if name := graph.Parameter(l.Node, row.attributes...); name != "" {
		return o, true, errParameter(l.Node, name)
	}
	if l.Layout.lost != "" {
		return o, true, l.Layout.lost
	}
	axes, why := row.Sums(l.Node, l.Input, len(l.Layout.Axes))
	if len(axes) == 0 {
		return o, false, why
	}
	o, weight = l.Layout.sum(axes, shape, row.Whole)
	return o, weight, ""
}

// Reach is the result of following a value.
type Reach struct {
	Leaves []Leaf // the operators that compute with it
	exits  []exit // returns from the function that contains it
	Output bool   // it is a graph output, behind nodes that pass it on
	Unread []Leaf // nodes that pass it on, to nobody
}

// exit is a return of the tensor from a function.
type exit struct {
	output int // position among the function's outputs
	Passage
}

func (r *Reach) add(s Reach) {
	r.Leaves = append(r.Leaves, s.Leaves...)
	r.exits = append(r.exits, s.exits...)
	r.Output = r.Output || s.Output
	r.Unread = append(r.Unread, s.Unread...)
}

func (r *Reach) empty() bool {
	return len(r.Leaves) == 0 && len(r.exits) == 0 && len(r.Unread) == 0 && !r.Output
}

// walk follows a tensor to the operators that compute with it, behind nodes that pass it on
// and through calls of functions.
type walk struct {
	*graph.Graph
	seen  map[string]Reach // results of argument, by value and passage
	depth int
}

// Limits against hostile models.
const (
	maxDepth = 1000   // longest chain of nodes that is followed
	maxSeen  = 10_000 // results that are kept
)

// Of follows a value, stored as a tensor of the given shape.
func Of(x *graph.Graph, v *graph.Value, shape []int64) Reach {
	w := &walk{Graph: x, seen: map[string]Reach{}}
	r := w.from(v, Passage{Layout: layoutOf(shape)})
	w.returns(&r, v.Body, r.exits, map[string]bool{})
	r.Output = r.Output || x.Leaves(v)
	if slices.ContainsFunc(r.Leaves, func(l Leaf) bool { return l.Held }) {
		r.Leaves = distinct(r.Leaves, w.leafKey) // all branches of an If may hand it on
	}
	return r
}

// returns follows the tensor out of function f to all calls of f.
func (w *walk) returns(r *Reach, f *graph.Function, exits []exit, done map[string]bool) {
	for _, e := range exits {
		key := fmt.Sprintf("%p %s", f, w.exitKey(e))
		if done[key] {
			continue
		}
		done[key] = true
		for _, c := range f.Calls {
			if e.output < len(w.Outputs(c)) {
				outside := w.behind(graph.Use{Node: c, Input: -1}, w.Outputs(c)[e.output], e.called())
				r.add(outside)
				w.returns(r, w.Home(c).Body, outside.exits, done)
			}
		}
	}
}

// from follows a value to all its uses.
func (w *walk) from(v *graph.Value, at Passage) (r Reach) {
	w.depth++
	defer func() { w.depth-- }()
	for _, u := range v.Uses {
		r.add(w.through(u, at))
	}
	for _, i := range v.Returned() {
		r.exits = append(r.exits, exit{i, at})
	}
	for _, y := range v.Yields() {
		if made, ok := w.Yielded(y); ok {
			r.add(w.behind(graph.Use{Node: y.Owner, Input: -1}, made, at.held()))
		}
	}
	return r
}

// through follows a value into a node.
func (w *walk) through(u graph.Use, at Passage) (r Reach) {
	if w.depth > maxDepth || len(w.seen) > maxSeen {
		return Reach{Leaves: []Leaf{{u, at}}}
	}
	if f := w.Called(u.Node); f != nil && u.Input < len(f.Inputs) {
		inside := w.argument(f.Inputs[u.Input], at.called())
		r.Leaves = slices.Clone(inside.Leaves)
		for _, e := range inside.exits {
			if e.output < len(w.Outputs(u.Node)) {
				r.add(w.behind(u, w.Outputs(u.Node)[e.output], e.called()))
			}
		}
		r.Output = inside.Output
		if len(inside.Leaves) == 0 && len(inside.exits) == 0 {
			r.Unread = []Leaf{{u, at.called()}}
		}
		return r
	}
	if inside, made, ok := w.Carried(u); ok {
		r := w.behind(graph.Use{Node: u.Node, Input: -1}, made, at.held())
		r.add(w.argument(inside, at.held()))
		if r.empty() {
			r.Unread = []Leaf{{u, at.held()}}
		}
		return r
	}
	if next, ok := w.passedOn(u, at.Layout); ok {
		cast := at.Cast || u.Node.GetOpType() == "Cast"
		r := w.behind(u, w.Outputs(u.Node)[0], Passage{next, cast, at.Call, at.Held, append(slices.Clone(at.Via), u.Node)})
		if r.empty() {
			r.Unread = []Leaf{{u, at}}
		}
		return r
	}
	return Reach{Leaves: []Leaf{{u, at}}}
}

// behind follows made, which node u.Node passes on.
func (w *walk) behind(u graph.Use, made *graph.Value, at Passage) Reach {
	switch {
	case made == nil: // the output is omitted
		return Reach{}
	case w.Leaves(made) && u.Input < 0:
		return Reach{Output: true}
	case w.Leaves(made):
		return Reach{Leaves: []Leaf{{u, at}}}
	case at.Held:
		return w.argument(made, at)
	}
	return w.from(made, at)
}

// called is the passage behind the entry into a function or the return from it.
func (p Passage) called() Passage {
	p.Call, p.Via = true, nil
	return p
}

// held is the passage behind the entry into a graph in an attribute or the return from it.
func (p Passage) held() Passage {
	p.Held, p.Via = true, nil
	return p
}

// argument follows an argument into a function, or a value into or out of the graph in an attribute.
// Results are cached, because nested calls would otherwise take exponential time.
func (w *walk) argument(v *graph.Value, at Passage) Reach {
	key := fmt.Sprintf("%p %s", v, w.key(at))
	r, ok := w.seen[key]
	if !ok {
		r = w.from(v, at)
		r.Leaves, r.exits = distinct(r.Leaves, w.leafKey), distinct(r.exits, w.exitKey)
		w.seen[key] = r
	}
	return r
}

// distinct drops entries with the key of an earlier one.
func distinct[T any](list []T, key func(T) string) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e T) bool {
		k := key(e)
		defer func() { seen[k] = true }()
		return seen[k]
	})
}

// key, leafKey and exitKey identify a passage, leaf or exit.
func (w *walk) key(p Passage) string {
	via := make([]int, len(p.Via))
	for i, n := range p.Via {
		via[i] = w.Number(n)
	}
	return fmt.Sprint(p.Layout, p.Cast, p.Call, p.Held, via)
}

func (w *walk) leafKey(l Leaf) string {
	return fmt.Sprint(w.Number(l.Node), l.Input, w.key(l.Passage))
}

func (w *walk) exitKey(e exit) string { return fmt.Sprint(e.output, w.key(e.Passage)) }

// passedOn reports whether a node passes the tensor on with its elements unchanged, except
// for a Cast to another float type. next is the layout behind the node.
func (w *walk) passedOn(u graph.Use, at layout) (next layout, ok bool) {
	n := u.Node
	if !graph.IsStandard(n.GetDomain()) || n.GetOverload() != "" || len(n.Output) != 1 || u.Input != 0 {
		return at, false
	}
	switch n.GetOpType() {
	case "Identity":
		return at, true
	case "Cast":
		return at, dtype.DType(graph.IntAttribute(n, "to")).Float()
	case "Transpose":
		return transposed(n, at)
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		if at.lost != "" {
			return at, true
		}
		if name := graph.Parameter(n, "allowzero", "axis", "axes", "shape"); name != "" {
			return layout{lost: errParameter(n, name)}, true
		}
		shape, ok := NewShape(w.Graph, n, at.shape())
		if !ok {
			return layout{lost: fmt.Sprintf("behind a %s whose shape is known only where the model runs", n.GetOpType())}, true
		}
		if next, ok = at.reshaped(shape); !ok {
			return layout{lost: fmt.Sprintf("behind a %s that cuts across its axes", n.GetOpType())}, true
		}
		return next, true
	}
	return at, false
}

// transposed is the layout behind a Transpose.
func transposed(n *onnxpb.NodeProto, at layout) (layout, bool) {
	if at.lost != "" {
		return at, true
	}
	if name := graph.Parameter(n, "perm"); name != "" {
		return layout{lost: errParameter(n, name)}, true
	}
	if perm := graph.Attribute(n, "perm"); perm != nil {
		return at.permuted(perm.Ints)
	}
	next := slices.Clone(at.Axes)
	slices.Reverse(next)
	return layout{Axes: next}, true
}
