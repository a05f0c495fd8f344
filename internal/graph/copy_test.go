package graph_test

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// branching is a model with weights in the main graph, in a branch, in a Constant node and
// in a function.
func branching(t *testing.T) *graph.Graph {
	t.Helper()
	m := modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 4, 4)},
		nodes{
			modeltest.Node("MatMul", "a", "x w"),
			modeltest.Node("Relu", "b", "a"),
			modeltest.Node("If", "c", "i",
				modeltest.GraphAttr("then_branch", []*onnxpb.TensorProto{modeltest.Floats("u", 4, 4)}, modeltest.Node("MatMul", "t", "b u")),
				modeltest.GraphAttr("else_branch", nil, modeltest.ConstantNode("k", modeltest.Floats("", 4, 4)), modeltest.Node("MatMul", "e", "b k"))),
			modeltest.Node("local.f", "y", "c"),
		},
		modeltest.Function("f", "v", "o", modeltest.ConstantNode("k", modeltest.Floats("", 4, 4)), modeltest.Node("MatMul", "o", "v k")))
	m.Proto.Graph.ValueInfo = []*onnxpb.ValueInfoProto{{Name: new("a")}, {Name: new("b")}}
	return modeltest.Open(t, modeltest.Write(t, m)).Graph()
}

// Every part of a copy leads to the part of the original that it is equal to, and the other
// way round.
func TestCopyKnowsOriginals(t *testing.T) {
	x := branching(t)
	c := x.Copy()
	if !proto.Equal(c.Proto, x.File.Proto) {
		t.Fatal("the copy is not equal to the original")
	}
	tensors, values := 0, 0
	for where, of := range modelfile.Tensors(c.Proto) {
		tensors++
		old := c.OriginalTensor(of)
		if old == nil || old == of || !proto.Equal(old, of) {
			t.Errorf("%s is a copy of %v", where, old)
		}
		if v := c.Value(of); v != nil && v.Tensor == old {
			values++
		}
	}
	if tensors != 4 || values != len(x.Values) {
		t.Errorf("%d tensors, %d of %d values", tensors, values, len(x.Values))
	}
	if added := modeltest.Floats("w", 4, 4); c.OriginalTensor(added) != nil || c.Value(added) != nil {
		t.Error("a new tensor has an original")
	}
	var originals []*onnxpb.NodeProto
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		originals = append(originals, n)
		if made := c.Node(n); made == n || made != c.Node(n) || !proto.Equal(made, n) {
			t.Errorf("%s has another copy", graph.Describe(n))
		}
	})
	graph.WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		if n != c.Node(originals[0]) {
			t.Errorf("the copy of %s is elsewhere", graph.Describe(n))
		}
		originals = originals[1:]
	})
	graph.WalkGraphs(x.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		if got := c.Graphs()[c.GraphNumber(g)]; got == g || !proto.Equal(got, g) {
			t.Errorf("graph %d is the copy of another", c.GraphNumber(g))
		}
	})
}

// Small initializers are shared, until the copy wants its own.
func TestCopySharesSmallInitializers(t *testing.T) {
	m := modeltest.Model([]*onnxpb.TensorProto{modeltest.Zeros("small", dtype.Int64, 2), modeltest.Floats("large", 8, 8)},
		nodes{modeltest.Node("Reshape", "a", "x small"), modeltest.Node("MatMul", "y", "a large")})
	x := modeltest.Open(t, modeltest.Write(t, m)).Graph()
	c := x.Copy()
	check := func(shared ...bool) {
		t.Helper()
		for i, of := range c.Proto.Graph.Initializer {
			old := x.File.Proto.Graph.Initializer[i]
			if (of == old) != shared[i] || c.OriginalTensor(of) != old || c.Value(of) != x.Values[i] || !proto.Equal(of, old) {
				t.Errorf("%s: shared %t, its original is %v, its value %v", of.GetName(), of == old, c.OriginalTensor(of), c.Value(of))
			}
		}
	}
	check(true, false)
	c.Own()
	check(false, false)
}

// What is done to a copy does not change the original.
func TestTidy(t *testing.T) {
	x := branching(t)
	before := proto.Clone(x.File.Proto)
	main := x.File.Proto.Graph
	branch := graph.Attribute(main.Node[2], "else_branch").G

	untouched := x.Copy()
	untouched.Tidy()
	if !proto.Equal(untouched.Proto, before) {
		t.Error("nothing was to be done, and the copy is another")
	}

	c := x.Copy()
	c.Drop(main.Node[0])
	c.Drop(main.Node[1])
	c.Drop(branch.Node[0])
	c.AddBehind(c.Node(main.Node[2]), modeltest.Node("Tanh", "b", "x"))
	c.AddBehind(c.Node(main.Node[2]), modeltest.Node("Abs", "d", "x"))
	if !c.Dropped(c.Node(main.Node[0])) || c.Dropped(c.Node(main.Node[2])) || len(c.Behind(c.Node(main.Node[2]))) != 2 {
		t.Error("dropped and added nodes are not known")
	}
	if !proto.Equal(c.Proto, before) {
		t.Error("the copy changes before Tidy")
	}
	c.Tidy()
	if got := operators(c.Proto.Graph.Node); !slices.Equal(got, []string{"If", "Tanh", "Abs", "f"}) {
		t.Errorf("nodes %v", got)
	}
	if got := operators(graph.Attribute(c.Proto.Graph.Node[0], "else_branch").G.Node); !slices.Equal(got, []string{"MatMul"}) {
		t.Errorf("nodes of the branch %v", got)
	}
	// b is made by another node.
	if info := c.Proto.Graph.ValueInfo; len(info) != 1 || info[0].GetName() != "b" {
		t.Errorf("types of %v", info)
	}
	// The nodes read b before it is made.
	c.Sort()
	if got := operators(c.Proto.Graph.Node); !slices.Equal(got, []string{"Tanh", "If", "Abs", "f"}) {
		t.Errorf("sorted nodes %v", got)
	}
	if !proto.Equal(x.File.Proto, before) {
		t.Error("the original has changed")
	}
}

// Notes go from all nodes of the copy, and stay in the original.
func TestStripNotes(t *testing.T) {
	x := branching(t)
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) { n.DocString = new("a stack trace") })
	notes := func(m *onnxpb.ModelProto) (count int) {
		graph.WalkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
			for _, n := range g.Node {
				if n.DocString != nil {
					count++
				}
			}
		})
		return count
	}
	c := x.Copy()
	before := notes(c.Proto)
	c.StripNotes()
	if before == 0 || notes(c.Proto) != 0 || notes(x.File.Proto) != before {
		t.Errorf("%d notes: %d in the copy, %d in the original", before, notes(c.Proto), notes(x.File.Proto))
	}
}

// A node is found among others that were added, and what is changed is not shared.
func TestCopyOwnsWhatChanges(t *testing.T) {
	x := branching(t)
	before := proto.Clone(x.File.Proto)
	c := x.Copy()
	c.Proto.Graph.Node = append([]*onnxpb.NodeProto{modeltest.Node("Relu", "first", "x")}, c.Proto.Graph.Node...)
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		made := c.Node(n)
		made.OpType, made.Output[0] = new("Changed"), "changed_"+n.Output[0]
	})
	graph.WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		if n != c.Proto.Graph.Node[0] && n.GetOpType() != "Changed" {
			t.Errorf("%s is not the node that was changed", graph.Describe(n))
		}
	})
	if !proto.Equal(x.File.Proto, before) {
		t.Error("the original has changed")
	}
}

// Nodes of functions are sorted, and those of the branches in them.
func TestSortFunctions(t *testing.T) {
	x := modeltest.Open(t, modeltest.Write(t, modeltest.Model(nil, nodes{modeltest.Node("local.f", "y", "i x")},
		modeltest.Function("f", "c v", "o", modeltest.Node("Neg", "n", "v"), modeltest.Node("If", "o", "c",
			modeltest.GraphAttr("then_branch", nil, modeltest.Node("Abs", "a", "n"), modeltest.Node("Neg", "t", "a")),
			modeltest.GraphAttr("else_branch", nil, modeltest.Node("Neg", "e", "n"))))))).Graph()
	c := x.Copy()
	f := c.Proto.Functions[0]
	for _, list := range []*[]*onnxpb.NodeProto{&graph.Attribute(f.Node[1], "then_branch").G.Node, &f.Node} {
		slices.Reverse(*list)
		if err := graph.Check(c.Proto); err == nil || !strings.Contains(err.Error(), "not sorted") {
			t.Errorf("error %v, want: not sorted", err)
		}
		if c.Sort(); graph.Check(c.Proto) != nil {
			t.Error(graph.Check(c.Proto))
		}
	}
}

// A change that makes a model invalid is found.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(m *onnxpb.ModelProto){
		"":                 func(m *onnxpb.ModelProto) {},
		`reads "z", which`: func(m *onnxpb.ModelProto) { m.Graph.Node[0].Input[0] = "z" },
		`"a" exists twice`: func(m *onnxpb.ModelProto) { m.Graph.Node[1].Output[0] = "a" },
		`"w" exists twice`: func(m *onnxpb.ModelProto) { m.Graph.Node[1].Output[0] = "w" },
		"cycle":            func(m *onnxpb.ModelProto) { m.Graph.Node[0].Input[0] = "b" },
		`reads "lost", which`: func(m *onnxpb.ModelProto) {
			graph.Attribute(m.Graph.Node[2], "then_branch").G.Node[0].Input[0] = "lost"
		},
		"part of a cycle": func(m *onnxpb.ModelProto) { // though the graph outside has an "a", too
			g := graph.Attribute(m.Graph.Node[2], "else_branch").G
			g.Node[0].Input, g.Node[1].Input = []string{"a"}, g.Node[0].Output
			g.Node[1].Output[0], g.Output[0].Name = "a", proto.String("a")
		},
		`no node makes graph output "e"`:    func(m *onnxpb.ModelProto) { graph.Attribute(m.Graph.Node[2], "else_branch").G.Node[1].Output[0] = "f" },
		`no node makes graph output "gone"`: func(m *onnxpb.ModelProto) { m.Functions[0].Output[0] = "gone" },
	} {
		m := proto.CloneOf(branching(t).File.Proto)
		change(m)
		if err := graph.Check(m); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func operators(nodes []*onnxpb.NodeProto) (list []string) {
	for _, n := range nodes {
		list = append(list, n.GetOpType())
	}
	return list
}

// A new name is none of the model's, wherever that is, and none that was given before.
func TestFresh(t *testing.T) {
	x := branching(t)
	names := x.NewNames()
	for _, c := range []struct{ hint, want string }{
		{"new", "new"}, {"new", "new_1"}, {"new", "new_2"},
		{"w", "w_1"}, // an initializer
		{"u", "u_1"}, // in a branch
		{"t", "t_1"}, // a value in a branch
		{"v", "v_1"}, // in a function
		{"w_1", "w_1_1"}, {"w", "w_2"},
	} {
		if got := names.Fresh(c.hint); got != c.want {
			t.Errorf("%s becomes %s, want %s", c.hint, got, c.want)
		}
	}
	if got := x.NewNames().Fresh("new"); got != "new" {
		t.Errorf("other names know of %s", got)
	}
}

// Nodes of a copy end up as Ordered sorts them, wherever new ones are, and few of them are looked up by name.
func TestSortOfCopies(t *testing.T) {
	const n = 1000
	names := func(i int) string { return "v" + strconv.Itoa(i) }
	chain := []*onnxpb.NodeProto{modeltest.Node("Neg", names(1), "x")}
	for i := 1; i < n; i++ {
		chain = append(chain, modeltest.Node("Neg", names(i+1), names(i)))
	}
	chain = append(chain, modeltest.Node("Neg", "y", names(n)))
	x := modeltest.Open(t, modeltest.Write(t, modeltest.Model(nil, chain))).Graph()
	for name, change := range map[string]func(c *graph.Copy) []*onnxpb.NodeProto{
		"none": func(c *graph.Copy) []*onnxpb.NodeProto { return c.Proto.Graph.Node },
		"one in front": func(c *graph.Copy) []*onnxpb.NodeProto {
			return slices.Insert(c.Proto.Graph.Node, 0, modeltest.Node("Abs", "a", "x"))
		},
		"one too early": func(c *graph.Copy) []*onnxpb.NodeProto {
			return slices.Insert(c.Proto.Graph.Node, 5, modeltest.Node("Abs", "a", names(9)))
		},
		"changed": func(c *graph.Copy) []*onnxpb.NodeProto {
			c.Node(x.File.Proto.Graph.Node[7]).Input[0] = names(3)
			return c.Proto.Graph.Node
		},
		"changed and too early": func(c *graph.Copy) []*onnxpb.NodeProto {
			c.Node(x.File.Proto.Graph.Node[7]).Input[0] = "a"
			return append(c.Proto.Graph.Node, modeltest.Node("Abs", "a", names(3)))
		},
		"moved": func(c *graph.Copy) []*onnxpb.NodeProto {
			slices.Reverse(c.Proto.Graph.Node[3:6])
			return c.Proto.Graph.Node
		},
	} {
		c := x.Copy()
		nodes := change(c)
		want, err := graph.Ordered(nodes)
		if err != nil {
			t.Fatal(name, err)
		}
		c.Proto.Graph.Node = nodes
		c.Sort()
		if !slices.Equal(c.Proto.Graph.Node, want) {
			t.Errorf("%s: not sorted", name)
		}
	}
	c := x.Copy()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.Sort()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*n {
		t.Errorf("%d bytes to sort %d nodes that are sorted", took, n)
	}
}
