package graph_test

import (
	"strings"
	"testing"

	"onnxquant/internal/access"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
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
	x := access.Graph(modeltest.Open(t, path))
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

// A name in the main graph may begin as the path of a branch.
func TestObservable(t *testing.T) {
	for name, want := range map[string]bool{"n": true, "a": true, "then_branch/a": false} {
		then := modeltest.Node("MatMul", "b", "x w")
		otherwise := modeltest.Node("MatMul", "e", "x w")
		choose := modeltest.Node("If", "y", "c", modeltest.GraphAttr("then_branch", nil, then), modeltest.GraphAttr("else_branch", nil, otherwise))
		path := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 64)}, nodes{
			modeltest.Node("Cast", "c", "i", modeltest.IntAttr("to", 9)), modeltest.Node("Neg", name, "x"), choose,
		}))
		x := access.Graph(modeltest.Open(t, path))
		made := x.File.Proto.Graph.Node
		branches := made[len(made)-1].Attribute
		if got := x.Observable(branches[0].G.Node[0]); got != want {
			t.Errorf("beside %q, the node in then_branch: %t, want %t", name, got, want)
		}
		if !x.Observable(branches[1].G.Node[0]) || !x.Observable(made[1]) {
			t.Errorf("beside %q, the nodes in else_branch and around it cannot be observed", name)
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
