package reach

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// Leaf is a use of a tensor by an operator that computes with it, perhaps behind
// others that only pass it on.
type Leaf struct {
	graph.Use
	Passage
}

// passage is how a tensor gets to a place.
type Passage struct {
	Layout layout              // as it is seen there
	Cast   bool                // to another type on the way
	Call   bool                // in or out of a function on the way
	Via    []*onnxpb.NodeProto // that pass it on, since the last call
}

// Operand tells how the operator sums over the tensor, which has that shape, if
// it takes it as its weight. why tells what is in the way of knowing how, or, of
// what is no weight, more than that.
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

// Reach is where a value gets to.
type Reach struct {
	Leaves []Leaf
	exits  []exit // out of the function that it is in
	Output bool   // it is an output of a graph, behind other nodes
	Unread []Leaf // nodes that only pass it on, to nobody
}

// exit is a value that a function returns.
type exit struct {
	output int // its index
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

// walk follows a tensor to those who compute with it: behind nodes that pass it
// on, and through functions that are called with it.
type walk struct {
	*graph.Graph
	seen  map[string]Reach // what becomes of a function's argument, by that and its layout
	depth int
}

// maxDepth is that of values made of each other which are followed.
const maxDepth = 1000

// reach follows a stored tensor.
func Of(x *graph.Graph, v *graph.Value, shape []int64) Reach {
	w := &walk{Graph: x, seen: map[string]Reach{}}
	r := w.from(v, Passage{Layout: layoutOf(shape)})
	w.returns(&r, v.Body, r.exits, map[string]bool{})
	return r
}

// returns follows what a function makes and returns to all who call it.
func (w *walk) returns(r *Reach, f *graph.Function, exits []exit, done map[string]bool) {
	for _, e := range exits {
		key := fmt.Sprintf("%p %v", f, e)
		if done[key] {
			continue
		}
		done[key] = true
		for _, c := range f.Calls {
			if e.output < len(w.Outputs[c]) {
				outside := w.behind(graph.Use{Node: c, Input: -1}, w.Outputs[c][e.output], e.called())
				r.add(outside)
				w.returns(r, w.Home[c].Body, outside.exits, done)
			}
		}
	}
}

// from follows a value.
func (w *walk) from(v *graph.Value, at Passage) (r Reach) {
	w.depth++
	defer func() { w.depth-- }()
	for _, u := range v.Uses {
		r.add(w.through(u, at))
	}
	for _, i := range v.Returned {
		r.exits = append(r.exits, exit{i, at})
	}
	return r
}

// through follows a value into a node.
func (w *walk) through(u graph.Use, at Passage) (r Reach) {
	if w.depth > maxDepth {
		return Reach{Leaves: []Leaf{{u, at}}}
	}
	if f := w.Called(u.Node); f != nil && u.Input < len(f.Inputs) {
		inside := w.argument(f.Inputs[u.Input], at.called())
		r.Leaves = slices.Clone(inside.Leaves)
		for _, e := range inside.exits {
			if e.output < len(w.Outputs[u.Node]) {
				r.add(w.behind(u, w.Outputs[u.Node][e.output], e.called()))
			}
		}
		if len(inside.Leaves) == 0 && len(inside.exits) == 0 {
			r.Unread = []Leaf{{u, at.called()}}
		}
		return r
	}
	if next, ok := w.passedOn(u, at.Layout); ok {
		cast := at.Cast || u.Node.GetOpType() == "Cast"
		r := w.behind(u, w.Outputs[u.Node][0], Passage{next, cast, at.Call, append(slices.Clone(at.Via), u.Node)})
		if r.empty() {
			r.Unread = []Leaf{{u, at}}
		}
		return r
	}
	return Reach{Leaves: []Leaf{{u, at}}}
}

// behind follows what a node makes of a value.
func (w *walk) behind(u graph.Use, made *graph.Value, at Passage) Reach {
	switch {
	case made == nil: // nobody wants it
		return Reach{}
	case made.Output && u.Input < 0:
		return Reach{Output: true}
	case made.Output:
		return Reach{Leaves: []Leaf{{u, at}}}
	}
	return w.from(made, at)
}

// called is the Passage into a function or out of it.
func (p Passage) called() Passage { return Passage{p.Layout, p.Cast, true, nil} }

// argument follows an argument of a function, once for each of its layouts, so
// that functions that call others several times cost no more than once.
func (w *walk) argument(v *graph.Value, at Passage) Reach {
	key := fmt.Sprintf("%p %v", v, at)
	r, ok := w.seen[key]
	if !ok {
		r = w.from(v, at)
		r.Leaves, r.exits = distinct(r.Leaves), distinct(r.exits)
		w.seen[key] = r
	}
	return r
}

// distinct drops elements that are there before.
func distinct[T any](list []T) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e T) bool {
		key := fmt.Sprintf("%v", e)
		defer func() { seen[key] = true }()
		return seen[key]
	})
}

// passedOn tells whether a node hands a tensor on as it is, but for the layout,
// which it returns, and a rounding to another float type.
func (w *walk) passedOn(u graph.Use, at layout) (next layout, ok bool) {
	n := u.Node
	if !graph.IsStandard(n.GetDomain()) || len(n.Output) != 1 || u.Input != 0 {
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
		if name := graph.Parameter(n, "allowzero", "axis", "axes"); name != "" {
			return layout{lost: errParameter(n, name)}, true
		}
		shape, ok := w.newShape(n, at)
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

// newShape tells the shape that a node gives to a tensor, if it is a constant.
func (w *walk) newShape(n *onnxpb.NodeProto, at layout) (shape []int64, ok bool) {
	rank := int64(len(at.Axes))
	var old []int64
	for i := range at.Axes {
		old = append(old, at.dim(i))
	}
	switch n.GetOpType() {
	case "Reshape":
		want, ok := w.ConstantInts(n, 1)
		if !ok {
			return nil, false
		}
		return shapes.Reshape(want, old, graph.IntAttribute(n, "allowzero") != 0)
	case "Flatten":
		axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 1), len(old))
		if axis < 0 || axis > rank {
			return nil, false
		}
		return []int64{shapes.Count(old[:axis]), shapes.Count(old[axis:])}, true
	}
	axes, ok := graph.Attribute(n, "axes").GetInts(), true
	if graph.Attribute(n, "axes") == nil && len(n.Input) > 1 {
		axes, ok = w.ConstantInts(n, 1)
	}
	if !ok || len(axes) > shapes.MaxRank {
		return nil, false
	}
	if n.GetOpType() == "Unsqueeze" {
		rank += int64(len(axes))
	}
	marked := map[int64]bool{}
	for _, a := range axes {
		if a < 0 {
			a += rank
		}
		if a < 0 || a >= rank || marked[a] {
			return nil, false
		}
		marked[a] = true
	}
	if n.GetOpType() == "Unsqueeze" {
		for i := range rank {
			if marked[i] {
				shape = append(shape, 1)
			} else {
				shape, old = append(shape, old[0]), old[1:]
			}
		}
		return shape, true
	}
	for i, d := range old {
		if !(marked[int64(i)] || len(axes) == 0 && d == 1) {
			shape = append(shape, d)
		}
	}
	return shape, true
}
