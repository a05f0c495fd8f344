package reach_test

import (
	"fmt"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

type nodes = []*onnxpb.NodeProto

// Functions that call others several times are followed once each.
func TestManyCalls(t *testing.T) {
	const depth = 60
	functions := []*onnxpb.FunctionProto{modeltest.Function("f0", "x v", "y", modeltest.Node("MatMul", "y", "x v"))}
	for i := range depth {
		f := fmt.Sprintf("local.f%d", i)
		functions = append(functions, modeltest.Function(fmt.Sprintf("f%d", i+1), "x v", "y",
			modeltest.Node(f, "a", "x v"), modeltest.Node(f, "b", "a v"), modeltest.Node("Add", "y", "a b")))
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, nodes{modeltest.Node(fmt.Sprintf("local.f%d", depth), "y", "x w")}, functions...)))
	p, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil || len(p.Stages().Weights) != 1 {
		t.Fatalf("%v, %d weights", err, len(p.Stages().Weights))
	}
}

// A chain of nodes that is too long to follow ends somewhere, not the program.
func TestLongChain(t *testing.T) {
	list := nodes{modeltest.Node("Identity", "v0", "w")}
	for i := range 5000 {
		list = append(list, modeltest.Node("Identity", fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d", i)))
	}
	list = append(list, modeltest.Node("MatMul", "y", "x v5000"))
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, list)))
	p, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil || p.Tensors[0].Reason != "read by Identity:0" {
		t.Errorf("%v, %+v", err, p.Tensors[0])
	}
}

// A chain of Ifs of which both branches hand the weight on, transposed or not, takes no exponential
// time, and each reader counts once.
func TestManyBranches(t *testing.T) {
	const depth = 60
	var list nodes
	v := "w"
	for i := range depth {
		next := fmt.Sprintf("v%d", i)
		list = append(list, modeltest.Node("If", next, "i",
			modeltest.GraphAttr("then_branch", nil, modeltest.Node("Identity", next+"t", v)),
			modeltest.GraphAttr("else_branch", nil, modeltest.Node("Transpose", next+"e", v))))
		v = next
	}
	list = append(list, modeltest.Node("MatMul", "y", "x "+v))
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, list)))
	p, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil || len(p.Stages().Weights) != 1 {
		t.Fatalf("%v, %d weights", err, len(p.Stages().Weights))
	}
	if n := len(p.Stages().Weights[0].Reach.Leaves); n != 2 {
		t.Errorf("%d readers, want the MatMul with the weight as it is and with its transpose", n)
	}
}

// loopOf makes a Loop that carries w, and whose body hands on what it says.
func loopOf(hands ...*onnxpb.NodeProto) *onnxpb.NodeProto {
	body := modeltest.GraphAttr("body", nil, append(nodes{modeltest.Node("Identity", "go", "more"), modeltest.Node("MatMul", "p", "s v")}, hands...)...)
	name := func(name string) *onnxpb.ValueInfoProto { return &onnxpb.ValueInfoProto{Name: &name} }
	body.G.Input = []*onnxpb.ValueInfoProto{name("round"), name("more"), name("s"), name("v")}
	body.G.Output = []*onnxpb.ValueInfoProto{name("go"), name("p"), name("next")}
	loop := modeltest.Node("Loop", "y", "i i x w", body)
	loop.Output = append(loop.Output, "last")
	return loop
}

// A Loop is followed if its body hands on what it got, and only then.
func TestLoop(t *testing.T) {
	for want, hands := range map[string]nodes{
		"":               {modeltest.Node("Identity", "a", "v"), modeltest.Node("Identity", "next", "a")},
		"read by Loop:3": {modeltest.Node("Transpose", "next", "v")},
	} {
		m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, nodes{loopOf(hands...)})))
		p, err := m.Plan(onnxq.Options{Block: 32})
		if err != nil || p.Tensors[0].Reason != want {
			t.Errorf("%v, %q, want %q", err, p.Tensors[0].Reason, want)
		}
	}
}

// manyTerms is a model with an Einsum of so many operands, of which w is one.
func manyTerms(t testing.TB, n int, equation string) *onnxq.Model {
	inputs := strings.Repeat("x ", n-1) + "w"
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 32)},
		nodes{modeltest.Node("Einsum", "y", inputs, modeltest.StringAttr("equation", equation))})))
}

// An Einsum of more operands than a matrix product has is none, whatever its equation.
func TestEinsumOfManyOperands(t *testing.T) {
	const n = 20_000
	for _, equation := range []string{strings.Repeat("bk,", n-1) + "kn->bn", strings.Repeat("bk,", n-1) + "kn"} {
		p, err := manyTerms(t, n, equation).Plan(onnxq.Options{Ops: []string{"all"}})
		if want := "read by Einsum:19999 (no matrix product: it has 20000 operands)"; err != nil || p.Tensors[0].Reason != want {
			t.Errorf("%v, %+v, want %s", err, p.Tensors[0], want)
		}
	}
}

// The time per operand and per letter must not grow with their number.
func BenchmarkEinsum(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprintf("%d operands", n), func(b *testing.B) {
			benchmarkPlan(b, manyTerms(b, n, strings.Repeat("bk,", n-1)+"kn->bn"))
		})
		b.Run(fmt.Sprintf("%d letters", 10*n), func(b *testing.B) {
			benchmarkPlan(b, manyTerms(b, 2, strings.Repeat("bk", 5*n)+",kn"))
		})
	}
}

func benchmarkPlan(b *testing.B, m *onnxq.Model) {
	for b.Loop() {
		if _, err := m.Plan(onnxq.Options{Ops: []string{"all"}}); err != nil {
			b.Fatal(err)
		}
	}
}
