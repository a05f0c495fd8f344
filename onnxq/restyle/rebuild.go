package restyle

import (
	"cmp"
	"regexp"
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/write"
)

// rebuild is a copy of a model in which weights get another form.
type rebuild struct {
	opts      Options
	copy      *graph.Copy
	operators *form.Operators
	builders  []*form.Builder // by graph of the copy: new tensors and nodes
	fills     []fill          // of the new tensors

	replaced []*recognize.Weight
	unfolded []bool            // by index of functions: weights in it became floats
	renamed  map[string]string // new name → name that became free

	experts map[*graph.Value]*discover.Expert // weights of MoE that may become parts of a QMoE
}

func newRebuild(x *graph.Graph, opts Options) *rebuild {
	c := x.Copy()
	r := &rebuild{
		opts: opts, copy: c, operators: form.OperatorsOf(c),
		unfolded: make([]bool, len(c.Proto.Functions)), renamed: map[string]string{},
	}
	for range c.Graphs() {
		r.builders = append(r.builders, form.NewBuilder(c.Names))
	}
	return r
}

// builder returns the builder of the graph that contains a weight.
func (r *rebuild) builder(w *recognize.Weight) *form.Builder {
	return r.builders[r.copy.GraphNumber(w.Graph)]
}

// finish completes the structure after all weights have been replaced: it removes unread nodes and
// raises the opset to at least need.
func (r *rebuild) finish(need int64) error {
	freed := r.sweep()
	r.sweepFunctions()
	r.operators.Finish()
	r.dropImport()
	if err := write.Inline(r.copy, func(*graph.Value) bool { return false }); err != nil {
		return err
	}
	if err := rewrite.Raise(r.copy, need); err != nil {
		return err
	}
	r.operators.Show()
	for i, g := range r.copy.Graphs() {
		b := r.builders[i]
		g.Initializer = append(g.Initializer, b.Tensors...)
		g.Node = append(b.Nodes, g.Node...)
	}
	r.copy.Sort()
	r.rename(freed)
	if len(r.fills) > 0 {
		opset.RaiseIR(r.copy.Proto, opset.FreeInitializers)
	}
	return nil
}

// sweep removes the nodes and tensors of replaced weights that nothing reads any more. It
// returns the names of the removed tensors.
func (r *rebuild) sweep() (freed map[string]bool) {
	dead := r.dropUnread(r.readCounts())
	graph.WalkGraphs(r.copy.Proto.Graph, func(g *onnxpb.GraphProto) {
		removed := map[string]bool{}
		g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool {
			gone := dead[r.copy.Value(t)]
			removed[t.GetName()] = gone
			return gone
		})
		// Up to IR 3, initializers are inputs too.
		g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return removed[in.GetName()] })
	})
	freed = map[string]bool{}
	for v := range dead {
		freed[v.Name] = true
	}
	return freed
}

// readCounts counts how often each name is read in the main graph and its subgraphs, new
// nodes included.
func (r *rebuild) readCounts() map[string]int {
	reads := map[string]int{}
	graph.WalkGraphs(r.copy.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, o := range g.Output {
			reads[o.GetName()]++
		}
		for _, n := range g.Node {
			if !r.copy.Dropped(n) {
				countInputs(reads, n, 1)
			}
			for _, behind := range r.copy.Behind(n) {
				countInputs(reads, behind, 1)
			}
		}
	})
	for _, b := range r.builders {
		for _, n := range b.Nodes {
			countInputs(reads, n, 1)
		}
	}
	return reads
}

func countInputs(reads map[string]int, n *onnxpb.NodeProto, by int) {
	for _, name := range n.Input {
		reads[name] += by
	}
}

// dropUnread drops the nodes above the replaced weights whose output is no longer read. It returns the
// values with a tensor that is no longer read.
func (r *rebuild) dropUnread(reads map[string]int) (dead map[*graph.Value]bool) {
	dead = map[*graph.Value]bool{}
	var visitInputs func(n *onnxpb.NodeProto)
	visit := func(v *graph.Value) {
		if v == nil || reads[v.Name] > 0 || v.Output {
			return
		}
		if v.Tensor != nil {
			dead[v] = true
		}
		if v.Node == nil {
			return
		}
		if n := r.copy.Node(v.Node); !r.copy.Dropped(n) {
			r.copy.Drop(v.Node)
			countInputs(reads, n, -1)
		}
		visitInputs(v.Node)
	}
	visitInputs = func(n *onnxpb.NodeProto) {
		for i := range n.Input {
			visit(r.copy.Original.Source(n, i))
		}
	}
	for _, w := range r.replaced {
		for _, n := range w.Nodes {
			visitInputs(n)
		}
		for _, end := range w.Ends {
			visit(r.copy.Original.Source(end, 1))
		}
	}
	return dead
}

// rename renames new tensors with a numbered name if the name without the number was freed.
func (r *rebuild) rename(freed map[string]bool) {
	graph.WalkGraphs(r.copy.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			if hint := numbered.ReplaceAllString(t.GetName(), ""); r.copy.OriginalTensor(t) == nil && freed[hint] && hint != t.GetName() && !r.copy.Original.Named(t.GetName()) {
				r.renamed[t.GetName()], freed[hint] = hint, false
				t.Name = &hint
			}
		}
	})
	graph.WalkGraphs(r.copy.Proto.Graph, func(g *onnxpb.GraphProto) {
		for i, n := range g.Node {
			g.Node[i] = graph.Reading(n, func(name string) string { return cmp.Or(r.renamed[name], name) })
		}
	})
}

// numbered matches the number that makes a name unique.
var numbered = regexp.MustCompile(`_[0-9]+$`)

// dropImport removes the import of com.microsoft if no node of that domain is left.
func (r *rebuild) dropImport() {
	if len(r.replaced) == 0 {
		return
	}
	used := false
	graph.WalkNodes(r.copy.Proto, func(n *onnxpb.NodeProto) { used = used || n.GetDomain() == graph.Contrib })
	if !used {
		r.copy.Proto.OpsetImport = slices.DeleteFunc(r.copy.Proto.OpsetImport, func(o *onnxpb.OperatorSetIdProto) bool { return o.GetDomain() == graph.Contrib })
	}
}
