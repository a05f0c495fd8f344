package graph

import (
	"hash/maphash"
	"slices"
	"strconv"

	"onnxquant/internal/onnxpb"
)

// Names is the set of names that a model uses, and makes new ones.
type Names struct {
	model  *Graph
	added  map[string]bool
	suffix map[string]int // hint → last number tried
}

// NewNames returns the model's names. The caller owns the set, which may grow.
func (x *Graph) NewNames() *Names {
	return &Names{model: x, added: map[string]bool{}, suffix: map[string]int{}}
}

// Fresh returns hint, or hint_1, hint_2, … if that is taken, and marks the name as taken.
func (s *Names) Fresh(hint string) string {
	name := hint
	for s.added[name] || s.model.Named(name) {
		s.suffix[hint]++
		name = hint + "_" + strconv.Itoa(s.suffix[hint])
	}
	s.added[name] = true
	return name
}

// NodeNames lists the names of nodes in file order, without empty ones.
func (x *Graph) NodeNames() (names []string) {
	WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if n.GetName() != "" {
			names = append(names, n.GetName())
		}
	})
	return names
}

// Named reports whether a value or node anywhere in the model has a name.
func (x *Graph) Named(name string) bool {
	x.naming.Do(x.hashNames)
	_, found := slices.BinarySearch(x.names, maphash.String(hashSeed, name))
	return found
}

// hashSeed is the seed for the hashes of names. Hashes take less memory than very many names. If two
// names have the same hash, Fresh only picks another name.
var hashSeed = maphash.MakeSeed()

// hashNames collects the names of the model.
func (x *Graph) hashNames() {
	m := x.File.Proto
	x.names = make([]uint64, 0, 2*len(x.places)+len(x.Values))
	add := func(name string) {
		if name != "" { // a node without a name, or an omitted output
			x.names = append(x.names, maphash.String(hashSeed, name))
		}
	}
	WalkAllGraphs(m, func(g *onnxpb.GraphProto) {
		for _, in := range g.Input {
			add(in.GetName())
		}
		for _, t := range g.Initializer {
			add(t.GetName())
		}
		for _, t := range g.SparseInitializer {
			add(t.GetValues().GetName())
		}
	})
	for _, f := range m.Functions {
		for _, name := range f.Input {
			add(name)
		}
	}
	WalkNodes(m, func(n *onnxpb.NodeProto) {
		add(n.GetName())
		for _, name := range n.Output {
			add(name)
		}
	})
	slices.Sort(x.names)
}
