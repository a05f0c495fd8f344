package actpairs

import (
	"cmp"
	"math"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Inner returns the values inside of functions that are written out as single operators: what divides by a root of squares,
// such as LayerNormalization and RMSNormalization, Gelu and HardSwish. Codes of 8 bits are too coarse for a variance or a cube,
// and each of a HardSwish's steps would round again; runtimes fuse such operators only in float. What enters a function and its result are not among the values.
func Inner(x *graph.Graph) []*graph.Value {
	f := &innerValues{x: x, found: map[*graph.Value]bool{}}
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if !graph.IsStandard(n.GetDomain()) {
			return
		}
		switch n.GetOpType() {
		case "Sqrt", "Pow", "ReduceL2":
			f.root(n)
		case "Erf", "Tanh":
			f.gelu(n)
		case "Clip":
			f.hardSwish(n)
		}
	})
	all := make([]*graph.Value, 0, len(f.found))
	for v := range f.found {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *graph.Value) int { return cmp.Compare(x.Number(a.Node), x.Number(b.Node)) })
	return all
}

type innerValues struct {
	x     *graph.Graph
	found map[*graph.Value]bool
}

// within are the operators that the functions consist of.
var within = map[string]bool{
	"Abs": true, "Add": true, "Cast": true, "Clip": true, "Div": true, "Erf": true, "Expand": true, "Identity": true, "Max": true, "Mul": true, "Neg": true, "Pow": true,
	"Reciprocal": true, "ReduceL2": true, "ReduceMean": true, "ReduceSum": true, "ReduceSumSquare": true, "Reshape": true, "Sqrt": true, "Squeeze": true, "Sub": true, "Tanh": true,
	"Unsqueeze": true,
}

// mostInner bounds the values of a function, and the steps to what it computes with.
const mostInner = 128

// region is a function: what is computed from its entries.
type region struct {
	x       *graph.Graph
	entries []*graph.Value
	on      map[*graph.Value]bool // whether a value is computed from an entry
}

func (f *innerValues) region(entries ...*graph.Value) *region {
	return &region{f.x, entries, map[*graph.Value]bool{}}
}

// contains reports whether v was added.
func (r *region) contains(v *graph.Value) bool { return r.on[v] }

// reads reports whether v is an entry, or was added now or before.
func (r *region) reads(v *graph.Value) bool { return slices.Contains(r.entries, v) || r.add(v) }

// add adds v, and what it is computed from, if that leads back to an entry. It reports whether the region has v then.
func (r *region) add(v *graph.Value) bool {
	if v == nil || v.Tensor != nil || v.Node == nil || slices.Contains(r.entries, v) {
		return false
	}
	on, known := r.on[v]
	if known || len(r.on) == mostInner || !within[v.Node.GetOpType()] || !graph.IsStandard(v.Node.GetDomain()) {
		return on
	}
	r.on[v] = false
	for _, in := range r.x.Inputs(v.Node) {
		on = r.reads(in) || on
	}
	r.on[v] = on
	return on
}

// root finds the function around a root of squares.
func (f *innerValues) root(n *onnxpb.NodeProto) {
	root := f.x.Made(n)
	var squares []*graph.Value
	switch e, ok := f.x.ConstantFloat(f.x.Source(n, 1)); {
	case n.GetOpType() == "ReduceL2":
		squares = []*graph.Value{f.x.Source(n, 0)}
	case n.GetOpType() == "Sqrt", ok && math.Abs(float64(e)) == 0.5:
		squares = f.squares(f.x.Source(n, 0), map[*graph.Value]bool{})
	}
	squares = slices.DeleteFunc(squares, func(v *graph.Value) bool { return v == nil }) // of nodes that lack an input
	if root == nil || len(squares) == 0 {
		return
	}
	r := f.region(f.entries(squares)...)
	if !r.add(root) {
		return
	}
	r.after(root)
	f.keep(r)
}

// squares lists the factors of the squares that v is a sum or mean of.
func (f *innerValues) squares(v *graph.Value, seen map[*graph.Value]bool) (all []*graph.Value) {
	if v == nil || v.Node == nil || v.Tensor != nil || seen[v] || len(seen) == mostInner || !graph.IsStandard(v.Node.GetDomain()) {
		return nil
	}
	seen[v] = true
	n := v.Node
	a, b := f.x.Source(n, 0), f.x.Source(n, 1)
	switch n.GetOpType() {
	case "Mul":
		if a == b {
			return []*graph.Value{a}
		}
		if a == nil || b == nil || a.Tensor == nil && b.Tensor == nil {
			return nil
		}
	case "Pow":
		if e, ok := f.x.ConstantFloat(b); ok && e == 2 {
			return []*graph.Value{a}
		}
		return nil
	case "ReduceSumSquare":
		return []*graph.Value{a}
	case "Abs", "Add", "Cast", "Clip", "Div", "Expand", "Identity", "Max", "ReduceMean", "ReduceSum", "Reshape", "Squeeze", "Sub", "Unsqueeze":
	default:
		return nil
	}
	for _, in := range f.x.Inputs(n) {
		for _, s := range f.squares(in, seen) {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// entries finds what a function reads, given what it squares: of a difference from the mean, that of which the mean is.
func (f *innerValues) entries(squares []*graph.Value) (all []*graph.Value) {
	for i, s := range squares {
		if s.Node != nil && s.Tensor == nil && s.Node.GetOpType() == "Sub" {
			if x := f.x.Source(s.Node, 0); x != nil && x.Tensor == nil && f.region(x).add(f.x.Source(s.Node, 1)) {
				s = x
			}
		}
		others := slices.Delete(slices.Clone(squares), i, i+1)
		if !f.region(others...).add(s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// after follows the root to the result: to what is divided by it, with a scale and a bias.
func (r *region) after(root *graph.Value) {
	queue, divided := []*graph.Value{root}, map[*graph.Value]bool{}
	for len(queue) > 0 && len(r.on) < mostInner {
		v := queue[0]
		queue = queue[1:]
		for _, u := range v.Uses {
			made := r.x.Made(u.Node)
			if made == nil || r.contains(made) || !within[u.Node.GetOpType()] || !graph.IsStandard(u.Node.GetDomain()) {
				continue
			}
			if on, divides := r.goesOn(u.Node, v, divided[v]); on {
				r.on[made], divided[made] = true, divided[v] || divides
				queue = append(queue, made)
			}
		}
	}
}

// goesOn reports whether a node that reads v is part of the function: beside v, it reads what is stored, or computed from the
// entries. divides: it multiplies an activation by the root. Behind that are only a scale and a bias: an entry as the other
// term is a residual.
func (r *region) goesOn(n *onnxpb.NodeProto, v *graph.Value, divided bool) (on, divides bool) {
	product := false
	switch n.GetOpType() {
	case "Mul", "Div":
		product = true
	case "Add", "Sub":
	case "Expand", "Reshape", "Unsqueeze", "Squeeze":
		return !divided && r.x.Source(n, 0) == v, false
	default:
		if divided {
			return false, false
		}
	}
	for _, in := range r.x.Inputs(n) {
		switch {
		case in == nil, in == v, in.Tensor != nil:
		case product && r.reads(in):
			divides = true
		case !r.add(in):
			return false, false
		}
	}
	return true, divides
}

// gelu finds the Gelu around an Erf or Tanh: a product of its argument with 1 + Erf or Tanh.
func (f *innerValues) gelu(n *onnxpb.NodeProto) {
	for _, x := range f.arguments(f.x.Source(n, 0)) {
		r := f.region(x)
		if !r.add(f.x.Made(n)) {
			continue
		}
		v, sums := f.x.Made(n), 0
		for range 4 {
			u := soleReader(v)
			if u == nil {
				break
			}
			other, op := f.x.Source(u, 0), u.GetOpType()
			if other == v {
				other = f.x.Source(u, 1)
			}
			made := f.x.Made(u)
			switch _, constant := f.x.ConstantFloat(other); {
			case constant && op == "Add":
				sums++
			case constant && (op == "Mul" || op == "Div"):
			case op == "Mul" && sums > 0 && (other == x || f.scaled(other) == x) && r.add(made):
				if next := soleReader(made); next != nil && next.GetOpType() == "Mul" && f.scaled(f.x.Made(next)) == made {
					r.add(f.x.Made(next))
				}
				f.keep(r)
				return
			default:
				u = nil
			}
			if u == nil {
				break
			}
			v = made
		}
	}
}

// hardSwish finds the HardSwish around a Clip: a product of x with Clip(x + 3, 0, 6), and with 1 / 6 before or behind.
func (f *innerValues) hardSwish(n *onnxpb.NodeProto) {
	sum := f.x.Source(n, 0)
	least, most, ok := boundsOf(f.x, n)
	if !ok || least != 0 || most != 6 || sum == nil || sum.Node == nil || sum.Tensor != nil || sum.Node.GetOpType() != "Add" {
		return
	}
	x, other := f.x.Source(sum.Node, 0), f.x.Source(sum.Node, 1)
	if _, ok := f.x.ConstantFloat(x); ok {
		x, other = other, x
	}
	if c, ok := f.x.ConstantFloat(other); !ok || c != 3 || x == nil || x.Tensor != nil {
		return
	}
	r, v, factor, product := f.region(x), f.x.Made(n), 1.0, false
	for r.add(v) && !(product && math.Abs(6*factor-1) < 1e-3) {
		u := soleReader(v)
		if u == nil {
			return
		}
		made := f.x.Made(u)
		a, b := f.x.Source(u, 0), f.x.Source(u, 1)
		switch {
		case f.scaled(made) == v:
			c, divisor := f.x.ConstantFloat(b)
			if !divisor {
				c, _ = f.x.ConstantFloat(a)
			}
			if u.GetOpType() == "Div" {
				c = 1 / c
			}
			factor *= float64(c)
		case product || u.GetOpType() != "Mul" || !(a == v && b == x || a == x && b == v):
			return
		default:
			product = true
		}
		v = made
	}
	if r.contains(v) {
		f.keep(r)
	}
}

// arguments lists what may be the argument of a Gelu, given that of its Erf or Tanh.
func (f *innerValues) arguments(v *graph.Value) (all []*graph.Value) {
	for range 3 {
		if v == nil || v.Tensor != nil {
			break
		}
		all = append(all, v)
		if v.Node != nil && (v.Node.GetOpType() == "Add" || v.Node.GetOpType() == "Mul") {
			all = append(all, f.x.Source(v.Node, 0), f.x.Source(v.Node, 1)) // x + c·x³, or x · (1 + c·x²)
		}
		v = f.scaled(v)
	}
	return slices.DeleteFunc(all, func(v *graph.Value) bool { return v == nil || v.Tensor != nil })
}

// scaled returns what a value is a product of with a number, or nil.
func (f *innerValues) scaled(v *graph.Value) *graph.Value {
	if v == nil || v.Node == nil || v.Tensor != nil {
		return nil
	}
	a, b := f.x.Source(v.Node, 0), f.x.Source(v.Node, 1)
	op := v.Node.GetOpType()
	if _, ok := f.x.ConstantFloat(b); ok && (op == "Mul" || op == "Div") {
		return a
	}
	if _, ok := f.x.ConstantFloat(a); ok && op == "Mul" {
		return b
	}
	return nil
}

// soleReader returns the only node that reads a value, or nil.
func soleReader(v *graph.Value) *onnxpb.NodeProto {
	if v == nil || len(v.Uses) != 1 || v.Output {
		return nil
	}
	return v.Uses[0].Node
}

// keep notes the values of a function that nothing else reads. The others are results.
func (f *innerValues) keep(r *region) {
	inside := func(n *onnxpb.NodeProto) bool {
		return !slices.ContainsFunc(r.x.Outputs(n), func(v *graph.Value) bool { return v != nil && !r.contains(v) })
	}
	for v, on := range r.on {
		if on && !v.Output && len(v.Uses) > 0 && len(v.Yields()) == 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !inside(u.Node) }) {
			f.found[v] = true
		}
	}
}
