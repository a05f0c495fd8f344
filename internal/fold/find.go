package fold

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// Group is tensors that belong together, because parts are made of several wholes or wholes
// make several parts.
type Group struct {
	Wholes []*graph.Value // the stored tensors, which nothing else reads
	Parts  []Part

	nodes []*onnxpb.NodeProto // that make the parts
}

// Part is a tensor to be stored once, for values with the same elements. It is stored in the graph of
// its wholes.
type Part struct {
	Values []*graph.Value
	From   []*graph.Value // the stored tensors that they are made of
}

// Find returns the groups of float tensors that can be folded without storing more bytes. With
// reshapes, nodes that change only the shape are folded even without a Slice, Split or Concat beside
// them.
func Find(x *graph.Graph, reshapes bool) []*Group {
	f := &finder{Graph: x, reshapes: reshapes, recognizer: recognizer(x), made: map[*graph.Value][]*graph.Value{}, inner: map[int]bool{}}
	var cut []*graph.Value
	graph.WalkGraphs(x.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			if !f.folding(n) || !f.cuts(n) {
				continue
			}
			for _, v := range x.Outputs(n) {
				if v != nil && slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !f.foldedUse(u) }) {
					cut = append(cut, v)
				}
			}
		}
	})
	return f.groups(f.parts(cut))
}

func recognizer(x *graph.Graph) *recognize.Recognizer {
	r := recognize.New(x)
	r.Rearrange = true
	return r
}

// finder is the state of Find.
type finder struct {
	*graph.Graph
	reshapes   bool
	recognizer *recognize.Recognizer
	made       map[*graph.Value][]*graph.Value // stored tensors that a value is made of; nil if it cannot be folded
	inner      map[int]bool                    // result of leadsOn, by number of the node
	depth      int
}

// folding reports whether a node can be the last one that is folded.
func (f *finder) folding(n *onnxpb.NodeProto) bool {
	return recognize.Cuts(n) || f.reshapes && recognize.Reshapes(n)
}

// deepest bounds the nodes between a whole and a part, against hostile models.
const deepest = 64

// wholes returns the stored float tensors that v is made from, if all nodes between can be folded;
// else none.
func (f *finder) wholes(v *graph.Value) []*graph.Value {
	if v.Tensor != nil {
		typ := dtype.DType(v.Tensor.GetDataType())
		if !typ.Float() || v.Body != nil || v.Input && !v.MustBeInput {
			return nil
		}
		return []*graph.Value{v}
	}
	n := v.Node
	if n == nil || f.depth > deepest || !recognize.Cuts(n) && !recognize.Reshapes(n) && !recognize.Transposes(n) {
		return nil
	}
	if found, ok := f.made[v]; ok {
		return found
	}
	f.made[v] = nil // while it is looked for
	f.depth++
	defer func() { f.depth-- }()
	var found []*graph.Value
	for i := range n.Input {
		if i > 0 && n.GetOpType() != "Concat" {
			break
		}
		in := f.Source(n, i)
		if in == nil {
			return nil
		}
		more := f.wholes(in)
		if len(more) == 0 {
			return nil
		}
		for _, w := range more {
			if !slices.Contains(found, w) {
				found = append(found, w)
			}
		}
		if len(found) > mostWholes {
			return nil
		}
	}
	f.made[v] = found
	return found
}

// mostWholes is the most tensors that one part may be made of.
const mostWholes = 100

// cuts reports whether all outputs of a Slice, Split or Concat, or of a Reshape, can be folded.
func (f *finder) cuts(n *onnxpb.NodeProto) bool {
	outputs := f.Outputs(n)
	return len(outputs) > 0 && !slices.ContainsFunc(outputs, func(v *graph.Value) bool {
		return v == nil || len(v.Yields()) > 0 || len(f.wholes(v)) == 0 || f.recognizer.Fold(v) == nil
	})
}

// foldedUse reports whether a use of a tensor is folded with it: the node is folded itself, or it
// changes the shape only for folded nodes, or it permutes axes for a Slice, Split or Concat.
func (f *finder) foldedUse(u graph.Use) bool {
	if u.Input > 0 && u.Node.GetOpType() != "Concat" {
		return false
	}
	number := f.Number(u.Node)
	if known, ok := f.inner[number]; ok {
		return known
	}
	leads := false
	switch made := f.Made(u.Node); {
	case f.folding(u.Node):
		leads = f.cuts(u.Node)
	case recognize.Reshapes(u.Node) && made != nil && f.depth < deepest:
		f.depth++
		leads = len(made.Yields()) == 0 && len(made.Uses) > 0 && !slices.ContainsFunc(made.Uses, func(u graph.Use) bool { return !f.foldedUse(u) })
		f.depth--
	case recognize.Transposes(u.Node) && made != nil:
		leads = len(made.Yields()) == 0 && len(made.Uses) > 0 && !slices.ContainsFunc(made.Uses, func(u graph.Use) bool { return !recognize.Cuts(u.Node) || !f.foldedUse(u) })
	}
	f.inner[number] = leads
	return leads
}

// parts joins values that have the same elements and shape.
func (f *finder) parts(values []*graph.Value) (all []Part) {
	known := map[string]int{} // index in all
	for _, v := range values {
		x := f.recognizer.Fold(v).Values
		key := fmt.Sprint(x.DType, x.Shape, x.Place())
		i, ok := known[key]
		if !ok {
			i = len(all)
			known[key] = i
			all = append(all, Part{From: f.wholes(v)})
		}
		all[i].Values = append(all[i].Values, v)
	}
	return all
}

// groups joins parts that have wholes in common, and returns the groups that may be folded.
func (f *finder) groups(parts []Part) []*Group {
	of := map[*graph.Value]*Group{} // by whole
	var all []*Group
	for _, p := range parts {
		g := &Group{}
		for _, w := range p.From {
			if old := of[w]; old != nil && len(old.Parts) > len(g.Parts) {
				g = old
			}
		}
		if len(g.Parts) == 0 {
			all = append(all, g)
		}
		g.Parts = append(g.Parts, p)
		for _, w := range p.From {
			old := of[w]
			switch {
			case old == nil:
				of[w], g.Wholes = g, append(g.Wholes, w)
			case old != g:
				g.Parts, g.Wholes = append(g.Parts, old.Parts...), append(g.Wholes, old.Wholes...)
				for _, w := range old.Wholes {
					of[w] = g
				}
				old.Parts, old.Wholes = nil, nil
			}
		}
	}
	trained := graph.TrainedNames(f.File.Proto)
	return slices.DeleteFunc(all, func(g *Group) bool { return !f.folds(g, trained) })
}

// folds reports whether a group can be folded without storing more bytes, and finds its nodes.
func (f *finder) folds(g *Group, trained map[string]bool) bool {
	size := int64(0) // of the wholes that are not stored in parts
	for _, w := range g.Wholes {
		size += graph.SizeOf(w.Tensor)
		if w.Graph != g.Wholes[0].Graph || len(w.Yields()) > 0 || trained[w.Name] || slices.ContainsFunc(w.Uses, func(u graph.Use) bool { return !f.foldedUse(u) }) {
			return false
		}
	}
	for _, p := range g.Parts {
		x := f.recognizer.Fold(p.Values[0]).Values
		if size -= x.DType.Bytes(x.Size()); size < 0 {
			return false
		}
	}
	seen := map[int]bool{}
	for _, w := range g.Wholes {
		f.collect(g, w, seen)
	}
	return len(g.Parts) > 0
}

// collect adds the nodes that make parts of a value to the group.
func (f *finder) collect(g *Group, v *graph.Value, seen map[int]bool) {
	for _, u := range v.Uses {
		if number := f.Number(u.Node); f.foldedUse(u) && !seen[number] {
			seen[number] = true
			g.nodes = append(g.nodes, u.Node)
			for _, made := range f.Outputs(u.Node) {
				f.collect(g, made, seen)
			}
		}
	}
}
