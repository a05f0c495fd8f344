package onnxq

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// leaf is a use of a tensor by an operator that computes with it, perhaps behind
// others that only pass it on.
type leaf struct {
	use
	passage
}

// passage is how a tensor gets to a place.
type passage struct {
	layout layout              // as it is seen there
	cast   bool                // to another type on the way
	call   bool                // in or out of a function on the way
	via    []*onnxpb.NodeProto // that pass it on, since the last call
}

// operand tells how the operator sums over the tensor, which has that shape, if
// it takes it as its weight. why tells what is in the way of knowing how, or, of
// what is no weight, more than that.
func (l leaf) operand(shape []int64) (o operand, weight bool, why string) {
	row := weightOpOf(l.use)
	if row == nil {
		return o, false, ""
	}
	if name := parameter(l.node, row.attributes...); name != "" {
		return o, true, errParameter(l.node, name)
	}
	if l.layout.lost != "" {
		return o, true, l.layout.lost
	}
	axes, why := row.sums(l.node, l.input, len(l.layout.axes))
	if len(axes) == 0 {
		return o, false, why
	}
	o, weight = l.layout.sum(axes, shape, row.whole)
	return o, weight, ""
}

// reach is where a value gets to.
type reach struct {
	leaves []leaf
	exits  []exit // out of the function that it is in
	output bool   // it is an output of a graph, behind other nodes
}

// exit is a value that a function returns.
type exit struct {
	output int // its index
	passage
}

func (r *reach) add(s reach) {
	r.leaves = append(r.leaves, s.leaves...)
	r.exits = append(r.exits, s.exits...)
	r.output = r.output || s.output
}

// walk follows a tensor to those who compute with it: behind nodes that pass it
// on, and through functions that are called with it.
type walk struct {
	*graphIndex
	seen  map[string]reach // what becomes of a function's argument, by that and its layout
	depth int
}

// maxDepth is that of values made of each other which are followed.
const maxDepth = 1000

// reach follows a stored tensor.
func reachOf(x *graphIndex, v *value, shape []int64) reach {
	w := &walk{graphIndex: x, seen: map[string]reach{}}
	r := w.from(v, passage{layout: layoutOf(shape)})
	w.returns(&r, v.body, r.exits, map[string]bool{})
	return r
}

// returns follows what a function makes and returns to all who call it.
func (w *walk) returns(r *reach, f *function, exits []exit, done map[string]bool) {
	for _, e := range exits {
		key := fmt.Sprintf("%p %v", f, e)
		if done[key] {
			continue
		}
		done[key] = true
		for _, c := range f.calls {
			if e.output < len(w.outputs[c]) {
				outside := w.behind(use{c, -1}, w.outputs[c][e.output], e.called())
				r.add(outside)
				w.returns(r, w.home[c].body, outside.exits, done)
			}
		}
	}
}

// from follows a value.
func (w *walk) from(v *value, at passage) (r reach) {
	w.depth++
	defer func() { w.depth-- }()
	for _, u := range v.uses {
		r.add(w.through(u, at))
	}
	for _, i := range v.returned {
		r.exits = append(r.exits, exit{i, at})
	}
	return r
}

// through follows a value into a node.
func (w *walk) through(u use, at passage) (r reach) {
	if w.depth > maxDepth {
		return reach{leaves: []leaf{{u, at}}}
	}
	if f := w.called(u.node); f != nil && u.input < len(f.inputs) {
		inside := w.argument(f.inputs[u.input], at.called())
		r.leaves = slices.Clone(inside.leaves)
		for _, e := range inside.exits {
			if e.output < len(w.outputs[u.node]) {
				r.add(w.behind(u, w.outputs[u.node][e.output], e.called()))
			}
		}
		return r
	}
	if next, ok := w.passedOn(u, at.layout); ok {
		cast := at.cast || u.node.GetOpType() == "Cast"
		return w.behind(u, w.outputs[u.node][0], passage{next, cast, at.call, append(slices.Clone(at.via), u.node)})
	}
	return reach{leaves: []leaf{{u, at}}}
}

// behind follows what a node makes of a value.
func (w *walk) behind(u use, made *value, at passage) reach {
	switch {
	case made == nil: // nobody wants it
		return reach{}
	case made.output && u.input < 0:
		return reach{output: true}
	case made.output:
		return reach{leaves: []leaf{{u, at}}}
	}
	return w.from(made, at)
}

// called is the passage into a function or out of it.
func (p passage) called() passage { return passage{p.layout, p.cast, true, nil} }

// argument follows an argument of a function, once for each of its layouts, so
// that functions that call others several times cost no more than once.
func (w *walk) argument(v *value, at passage) reach {
	key := fmt.Sprintf("%p %v", v, at)
	r, ok := w.seen[key]
	if !ok {
		r = w.from(v, at)
		r.leaves, r.exits = distinct(r.leaves), distinct(r.exits)
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
func (w *walk) passedOn(u use, at layout) (next layout, ok bool) {
	n := u.node
	if !standardDomain(n.GetDomain()) || len(n.Output) != 1 || u.input != 0 {
		return at, false
	}
	switch n.GetOpType() {
	case "Identity":
		return at, true
	case "Cast":
		return at, dtype.DType(intAttribute(n, "to")).Float()
	case "Transpose":
		return transposed(n, at)
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		if at.lost != "" {
			return at, true
		}
		if name := parameter(n, "allowzero", "axis", "axes"); name != "" {
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
	if name := parameter(n, "perm"); name != "" {
		return layout{lost: errParameter(n, name)}, true
	}
	if perm := attribute(n, "perm"); perm != nil {
		return at.permuted(perm.Ints)
	}
	next := slices.Clone(at.axes)
	slices.Reverse(next)
	return layout{axes: next}, true
}

// newShape tells the shape that a node gives to a tensor, if it is a constant.
func (w *walk) newShape(n *onnxpb.NodeProto, at layout) (shape []int64, ok bool) {
	rank := int64(len(at.axes))
	var old []int64
	for i := range at.axes {
		old = append(old, at.dim(i))
	}
	switch n.GetOpType() {
	case "Reshape":
		want, ok := w.constantInts(n, 1)
		if !ok {
			return nil, false
		}
		return reshapedTo(want, old, intAttribute(n, "allowzero") != 0)
	case "Flatten":
		axis := counted(intAttributeOr(n, "axis", 1), len(old))
		if axis < 0 || axis > rank {
			return nil, false
		}
		return []int64{elements(old[:axis]), elements(old[axis:])}, true
	}
	axes, ok := attribute(n, "axes").GetInts(), true
	if attribute(n, "axes") == nil && len(n.Input) > 1 {
		axes, ok = w.constantInts(n, 1)
	}
	if !ok || len(axes) > maxRank {
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
