package graph_test

import (
	"strings"
	"testing"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// What a value does not need is left out.
func TestOnly(t *testing.T) {
	m, err := modelfile.Open(modeltest.Build(t, "mlp"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := graph.New(m)
	if err != nil {
		t.Fatal(err)
	}
	whole := m.Proto.Graph
	for i, n := range whole.Node {
		only := x.Only(n.Output[:1]).Graph
		if len(only.Node) > i+1 || only.Node[len(only.Node)-1] != n || only.Output[0].GetName() != n.Output[0] {
			t.Errorf("%s: %d nodes", n.Output[0], len(only.Node))
		}
		if i == 0 && len(only.Initializer) >= len(whole.Initializer) {
			t.Errorf("%s: %d initializers", n.Output[0], len(only.Initializer))
		}
	}
}

// Values leave the branches that they are seen in, and what they do not need is left out there, too.
func TestOnlyOfBranches(t *testing.T) {
	product := func(y, x string) *onnxpb.NodeProto { return modeltest.Node("MatMul", y, x+" w") }
	choose := func(y string, then, otherwise nodes) *onnxpb.NodeProto {
		return modeltest.Node("If", y, "c", modeltest.GraphAttr("then_branch", nil, then...), modeltest.GraphAttr("else_branch", nil, otherwise...))
	}
	inner := choose("t", nodes{product("a", "x"), product("b", "a")}, nodes{product("e", "x")})
	outer := choose("y", nodes{inner, product("z", "t")}, nodes{product("d", "x")})
	path := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 64)}, nodes{modeltest.Node("Cast", "c", "i", modeltest.IntAttr("to", 9)), outer}))
	x := modeltest.Open(t, path).Graph()
	const empty = "(Constant)"
	for _, c := range []struct {
		values string
		want   string
	}{
		{"c", "(Cast)"},
		{"y", "(Cast If(If(MatMul MatMul)(MatMul) MatMul)(MatMul))"},
		{"else_branch/d", "(Cast If" + empty + "(MatMul Cast))"},
		{"else_branch/x", "(Cast If" + empty + "(Cast))"},
		{"then_branch/t", "(Cast If(If(MatMul MatMul)(MatMul) Cast)" + empty + ")"},
		{"then_branch/then_branch/a", "(Cast If(If(MatMul Cast)" + empty + ")" + empty + ")"},
		{"then_branch/else_branch/e else_branch/d", "(Cast If(If" + empty + "(MatMul Cast) Constant)(MatMul Constant Cast))"},
	} {
		values := strings.Fields(c.values)
		m := x.Only(values)
		if got := listed(m.Graph); got != c.want || m.Graph.Output[len(values)-1].GetName() != values[len(values)-1] {
			t.Errorf("%s: %s, want %s", c.values, got, c.want)
		}
		if _, err := graph.New(&modelfile.Model{Proto: m}); err != nil {
			t.Errorf("%s: %v", c.values, err)
		}
	}
}

// The name by which a value in a branch is known outside may be that of another value.
func TestObservable(t *testing.T) {
	for _, c := range []struct {
		outside, branch, inner string // names of a value in the main graph, in a branch of it, in a branch of that
		branchIs, innerIs      bool   // observable
	}{
		{"n", "a", "b", true, true},
		{"then_branch/n", "a", "b", true, true},
		{"then_branch/a", "a", "b", false, true},
		{"then_branch/then_branch/b", "a", "b", true, false},
		{"n", "then_branch/n", "b", false, true}, // n is seen in the inner branch
		{"n", "then_branch/b", "b", false, true}, // so is b
		{"n", "then_branch/then_branch/b", "b", true, false},
		{"n", "a", "then_branch/then_branch/b", true, true},
	} {
		product := func(y string) *onnxpb.NodeProto { return modeltest.Node("MatMul", y, "x w") }
		choose := func(y string, then ...*onnxpb.NodeProto) *onnxpb.NodeProto {
			return modeltest.Node("If", y, "c", modeltest.GraphAttr("then_branch", nil, then...), modeltest.GraphAttr("else_branch", nil, product("e")))
		}
		path := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 64)}, nodes{
			modeltest.Node("Cast", "c", "i", modeltest.IntAttr("to", 9)), modeltest.Node("Neg", c.outside, "x"),
			choose("y", product(c.branch), choose("z", product(c.inner))),
		}))
		x := modeltest.Open(t, path).Graph()
		main := x.File.Proto.Graph.Node
		then, otherwise := main[2].Attribute[0].G.Node, main[2].Attribute[1].G.Node
		inner := then[1].Attribute[0].G.Node
		for _, n := range []struct {
			node *onnxpb.NodeProto
			want bool
		}{{main[1], true}, {then[0], c.branchIs}, {inner[0], c.innerIs}, {otherwise[0], true}} {
			v := x.Made(n.node)
			if got := x.Observable(n.node, v); got != n.want {
				t.Errorf("%+v: %s is observable: %t", c, v.Path, got)
			} else if got {
				if _, err := graph.New(&modelfile.Model{Proto: x.Only([]string{x.Seen(n.node, v)})}); err != nil {
					t.Errorf("%+v: %s: %v", c, v.Path, err)
				}
			}
		}
		if x.Observable(main[1], x.Made(inner[0])) {
			t.Errorf("%+v: a value in a branch is observable outside", c)
		}
	}
}

// listed lists the operators of a graph and, in parentheses, of its subgraphs.
func listed(g *onnxpb.GraphProto) string {
	var all []string
	for _, n := range g.Node {
		op := n.GetOpType()
		for _, a := range n.Attribute {
			if a.G != nil {
				op += listed(a.G)
			}
		}
		all = append(all, op)
	}
	return "(" + strings.Join(all, " ") + ")"
}
