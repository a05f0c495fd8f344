package compare_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/errstat"
	"onnxquant/internal/form"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// ending is a context that ends after it was asked a number of times.
type ending struct {
	context.Context
	left int
}

func (c *ending) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A signal ends the comparison of structures, whatever it is at.
func TestMatchStops(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	for asked := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := compare.MatchWeights(&ending{ctx, asked}, modeltest.Open(t, in), modeltest.Open(t, in), nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d: %v", asked, err)
		}
	}
}

// matched folds the model at out back to float and compares it with that at in.
func matched(t *testing.T, in, out string) *compare.Match {
	t.Helper()
	folded := filepath.Join(t.TempDir(), "folded.onnx")
	report, err := restyle.Dequantize(context.Background(), out, folded, restyle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := compare.MatchWeights(context.Background(), modeltest.Open(t, in), modeltest.Open(t, folded), report, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Whatever form a model's weights take, nothing else is said to have changed, and
// each weight is as far off as the conversion says.
func TestMatchOfConversions(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "float64" { // what is measured there is rounded to float32
			continue
		}
		for _, opts := range []onnxq.Options{
			{Block: 32},
			{Block: 32, Style: spec.NBits, ZeroPoint: true},
			{Bits: 8, Block: spec.PerChannel},
			{Format: spec.NF4, Target: spec.ORT},
		} {
			opts.Ops = reach.KnownOps
			in := modeltest.Build(t, kind.Name)
			out := filepath.Join(t.TempDir(), "out.onnx")
			opts.AllowFallback = true
			report, err := onnxq.Convert(context.Background(), in, out, opts)
			if err != nil {
				t.Fatal(err)
			}
			m := matched(t, in, out)
			if len(m.Problems) > 0 {
				t.Errorf("%s %+v: %v", kind.Name, opts, m.Problems)
			}
			if len(m.Weights) != len(report.Tensors) {
				t.Errorf("%s %+v: %d weights, %d were quantized", kind.Name, opts, len(m.Weights), len(report.Tensors))
			}
			for _, w := range m.Weights {
				i := slices.IndexFunc(report.Tensors, func(r onnxq.TensorReport) bool { return r.Name == w.Name })
				if i < 0 {
					t.Errorf("%s: %q was not quantized", kind.Name, w.Name)
					continue
				}
				want := report.Tensors[i]
				if math.Abs(w.SQNR-want.SQNR) > 0.02 || math.Abs(w.MaxError-want.MaxError) > 0.01*want.MaxError {
					t.Errorf("%s %+v %s: SQNR %v, error %v, want %v, %v", kind.Name, opts, w.Name, w.SQNR, w.MaxError, want.SQNR, want.MaxError)
				}
				if w.SQNR < errstat.Exact && (w.Worst == nil || w.Worst.SQNR > w.SQNR+1e-9 || w.Worst.MaxError > w.MaxError) {
					t.Errorf("%s %s: worst block %+v of %+v", kind.Name, w.Name, w.Worst, w)
				}
			}
		}
	}
}

// Before IR 4 all initializers are inputs, and constants all the same. They stay constants.
func TestMatchOfOldModels(t *testing.T) {
	for _, opts := range []onnxq.Options{{Block: 32}, {Block: 32, Style: spec.NBits}, {Block: 32, Style: spec.QDQ}, {Bits: 8, Block: spec.PerChannel, Style: spec.QDQ}} {
		m, err := testmodels.Build("mlp", 1)
		if err != nil {
			t.Fatal(err)
		}
		g := m.Proto.Graph
		m.Proto.IrVersion, m.Proto.OpsetImport[0].Version = new(int64(3)), new(int64(9))
		for _, w := range g.Initializer {
			g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: w.Name, Type: g.Input[0].Type})
		}
		in, out := modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, in, out, opts)
		if m := matched(t, in, out); len(m.Problems) > 0 || len(m.Weights) != 3 {
			t.Errorf("%+v: %d weights, %q", opts, len(m.Weights), m.Problems)
		}
		if inputs := modeltest.Open(t, out).Graph().File.Proto.Graph.Input; len(inputs) != 1 {
			t.Errorf("%+v: inputs %v", opts, inputs)
		}
	}
}

// A quantized weight that nothing reads changes nothing.
func TestMatchOfUnreadWeights(t *testing.T) {
	in, folder := modeltest.Build(t, "mlp"), t.TempDir()
	quantized, out := filepath.Join(folder, "quantized.onnx"), filepath.Join(folder, "out.onnx")
	modeltest.Convert(t, in, quantized, onnxq.Options{})
	p := modeltest.Read(t, quantized)
	i := slices.IndexFunc(p.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "DequantizeLinear" })
	again := proto.Clone(p.Graph.Node[i]).(*onnxpb.NodeProto)
	again.Output = []string{"again"}
	p.Graph.Node = append(p.Graph.Node, again)
	if err := (&testmodels.Model{Proto: p}).Write(out); err != nil {
		t.Fatal(err)
	}
	if m := matched(t, in, out); len(m.Problems) > 0 || len(m.Weights) != 3 {
		t.Errorf("%d weights, %q", len(m.Weights), m.Problems)
	}
}

// The worst block is the one that was spoiled.
func TestWorstBlock(t *testing.T) {
	model, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	in := modeltest.Write(t, model)
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Bits: 8, Block: 32})

	// A weight w0 [64, 96] with an outlier that the quantized model does not have.
	other := proto.Clone(model.Proto).(*onnxpb.ModelProto)
	raw := other.Graph.Initializer[0].RawData
	at := 4 * (40*96 + 17)
	raw[at+3], raw[at+2] = 0x41, 0x20 // 10.…
	m := matched(t, modeltest.Write(t, &testmodels.Model{Proto: other}), out)
	w := m.Weights[0]
	if w.Name != "w0" || w.Worst == nil || !slices.Equal(w.Worst.At, []int64{32, 17}) || w.Worst.Length != 32 || w.MaxError < 9 || w.Worst.MaxError != w.MaxError {
		t.Errorf("%+v, worst block %+v", w, w.Worst)
	}
}

// Blocks are those of the codes, also where Reshape gives the weight another shape.
func TestWorstBlockOfView(t *testing.T) {
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 8, 4, 3, 3)}, modeltest.Nodes{modeltest.Node("Conv", "y", "x w")})
	in, out := modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32, Ops: reach.KnownOps})
	b := matched(t, in, out).Weights[0].Worst
	if b == nil || !slices.Equal(b.Shape, []int64{8, 36}) || b.Axis != 1 || b.At[1]%32 != 0 || b.Length != 32 && b.Length != 4 || b.Length == 32 && b.At[1] != 0 {
		t.Errorf("%+v", b)
	}
	per := &onnxq.Options{Bits: 8, Block: spec.PerChannel, Ops: reach.KnownOps}
	modeltest.Convert(t, in, out, *per)
	if b := matched(t, in, out).Weights[0].Worst; b == nil || b.Axis != 0 || b.Length != 36 {
		t.Errorf("%+v", b)
	}
}

func TestMatchFindsChanges(t *testing.T) {
	for _, test := range []struct {
		edit func(g *onnxpb.GraphProto)
		want string
	}{
		{func(g *onnxpb.GraphProto) { g.Node[2].OpType = proto.String("Tanh") }, `Relu node "Relu_h0" is Tanh`},
		{func(g *onnxpb.GraphProto) { g.Node[2].Input[0] = "m0" }, `Relu node "Relu_h0": input 0 is "m0", was "a0"`},
		{func(g *onnxpb.GraphProto) {
			g.Node[2].Attribute = []*onnxpb.AttributeProto{form.IntAttr("alpha", 1)}
		}, `Relu node "Relu_h0": attribute "alpha" is new`},
		{func(g *onnxpb.GraphProto) {
			g.Output = append(g.Output, proto.Clone(g.Output[0]).(*onnxpb.ValueInfoProto))
			g.Output[1].Name = proto.String("h0")
		}, `output "h0" is new`},
		{func(g *onnxpb.GraphProto) { g.Input[0].Name = proto.String("z"); g.Node[0].Input[0] = "z" }, `input "x" is gone`},
		{func(g *onnxpb.GraphProto) {
			g.Output[0].Type.GetTensorType().ElemType = proto.Int32(int32(onnxpb.TensorProto_FLOAT16))
		}, `output "y": FLOAT [batch 16] -> FLOAT16 [batch 16]`},
		{func(g *onnxpb.GraphProto) {
			g.Node[2].OpType, g.Node[2].Name = proto.String("Relu"), proto.String("again")
			g.Node[3].Input[0] = "h00"
			g.Node = slices.Insert(g.Node, 3, &onnxpb.NodeProto{OpType: proto.String("Neg"), Input: []string{"h0"}, Output: []string{"h00"}})
		}, `Neg node "h00" is new`},
	} {
		model, err := testmodels.Build("mlp", 1)
		if err != nil {
			t.Fatal(err)
		}
		test.edit(model.Proto.Graph)
		m, err := compare.MatchWeights(context.Background(), modeltest.Open(t, modeltest.Build(t, "mlp")), modeltest.Open(t, modeltest.Write(t, model)), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(m.Problems, test.want) {
			t.Errorf("problems %q, want %q", m.Problems, test.want)
		}
	}
}

// What constants determine is compared too, and is not taken for what computes
// something of the same name.
func TestMatchOfConstants(t *testing.T) {
	// The first product reads Relu(w0), a Constant is added to y, and b0 is also an output.
	edited := func(edit func(g *onnxpb.GraphProto)) *onnxq.Model {
		model, err := testmodels.Build("mlp", 1)
		if err != nil {
			t.Fatal(err)
		}
		g := model.Proto.Graph
		last := g.Node[len(g.Node)-1]
		g.Node[0].Input[1], last.Output[0] = "relu", "sum"
		number := &onnxpb.AttributeProto{Name: proto.String("value_int"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(1 << 40)}
		g.Node = append([]*onnxpb.NodeProto{
			{OpType: proto.String("Relu"), Input: []string{"w0"}, Output: []string{"relu"}},
			{OpType: proto.String("Constant"), Output: []string{"number"}, Attribute: []*onnxpb.AttributeProto{number}},
		}, g.Node...)
		g.Node = append(g.Node,
			&onnxpb.NodeProto{OpType: proto.String("CastLike"), Input: []string{"number", "sum"}, Output: []string{"float"}},
			&onnxpb.NodeProto{OpType: proto.String("Add"), Input: []string{"sum", "float"}, Output: []string{"y"}})
		output := proto.Clone(g.Output[0]).(*onnxpb.ValueInfoProto)
		output.Name = proto.String("b0")
		g.Output = append(g.Output, output)
		edit(g)
		return modeltest.Open(t, modeltest.Write(t, model))
	}
	for _, test := range []struct {
		edit    func(g *onnxpb.GraphProto)
		problem string // "": b0 differs
	}{
		{func(g *onnxpb.GraphProto) { g.Node[0].Input[0] = "x" }, `Relu node "relu": input 0 is "x", was "w0"`},
		{func(g *onnxpb.GraphProto) { g.Node[0].OpType = proto.String("RandomNormalLike") }, `Relu node "relu" is RandomNormalLike`},
		{func(g *onnxpb.GraphProto) { g.Node[1].Attribute[0].I = proto.Int64(1<<40 + 1) }, `CastLike node "float": Constant node "number": ~ attribute "value_int": i: 1099511627776 -> 1099511627777`},
		{func(g *onnxpb.GraphProto) { g.Initializer[1].RawData[0] ^= 1 }, ""},
	} {
		m, err := compare.MatchWeights(context.Background(), edited(func(*onnxpb.GraphProto) {}), edited(test.edit), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case test.problem != "" && !slices.Contains(m.Problems, test.problem):
			t.Errorf("problems %q, want %q", m.Problems, test.problem)
		case test.problem == "" && (len(m.Weights) != 1 || m.Weights[0].Name != "b0" || len(m.Problems) > 0):
			t.Errorf("%+v", m)
		}
	}
}

// A long chain of constants is followed to its beginning.
func TestMatchOfLongChain(t *testing.T) {
	chain := func(op string) *onnxq.Model {
		list := modeltest.Nodes{modeltest.Node(op, "v0", "w")}
		for i := range 5000 {
			list = append(list, modeltest.Node("Sqrt", fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d", i)))
		}
		list = append(list, modeltest.Node("MatMul", "y", "x v5000"))
		return modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 4, 4)}, list)))
	}
	for op, want := range map[string][]string{"Abs": {}, "Exp": {`MatMul node "y": cannot tell whether "v0" equals "v0"`}} {
		m, err := compare.MatchWeights(context.Background(), chain("Abs"), chain(op), nil, nil)
		if err != nil || !slices.Equal(m.Problems, want) {
			t.Errorf("%s: %q, %v", op, m.Problems, err)
		}
	}
}

// A weight that is another one without being quantized is found too.
func TestMatchOfFloats(t *testing.T) {
	model, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	copy(model.Proto.Graph.Initializer[1].RawData, []byte{0, 0, 0x80, 0x7f}) // b0[0] is infinite
	m, err := compare.MatchWeights(context.Background(), modeltest.Open(t, modeltest.Build(t, "mlp")), modeltest.Open(t, modeltest.Write(t, model)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Weights) != 1 || m.Weights[0].Name != "b0" || m.Weights[0].Broken != 1 || m.Weights[0].Form != "float" || m.Same != 5 {
		t.Errorf("%+v", m)
	}
}

// Operators on codes stand for the nodes between a weight and its reader, whatever they are.
func TestMatchBehindNodes(t *testing.T) {
	shape := modeltest.Integers("shape", 64, 24)
	model := func(t *testing.T, w *onnxpb.TensorProto, between ...*onnxpb.NodeProto) string {
		return modeltest.Write(t, modeltest.Model(modeltest.Tensors{w, shape, modeltest.Integers("one", 1)}, append(between, modeltest.Node("MatMul", "y", "x v"))))
	}
	perm := func(v ...int64) *onnxpb.NodeProto {
		return modeltest.Node("Transpose", "u", "w", modeltest.IntsAttr("perm", v...))
	}
	flat, cube := modeltest.Floats("w", 64, 24), modeltest.Floats("w", 24, 8, 8)
	reshape := modeltest.Node("Reshape", "v", "u shape")
	for _, test := range []struct {
		name    string
		w       *onnxpb.TensorProto
		between []*onnxpb.NodeProto
		other   *onnxpb.NodeProto // instead of the first one, which must not pass
	}{
		{"unsqueeze", flat, modeltest.Nodes{modeltest.Node("Unsqueeze", "u", "w one"), modeltest.Node("Squeeze", "v", "u one")}, nil},
		{"flatten", flat, modeltest.Nodes{modeltest.Node("Flatten", "v", "w")}, nil},
		{"transpose", cube, modeltest.Nodes{perm(1, 2, 0), reshape}, perm(2, 1, 0)},
	} {
		in, out := model(t, test.w, test.between...), filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, in, out, onnxq.Options{Block: 32, Style: spec.NBits})
		if m := matched(t, in, out); len(m.Problems) > 0 || len(m.Weights) != 1 || m.Weights[0].SQNR < 10 || m.Weights[0].Form != "MatMulNBits" {
			t.Errorf("%s: %+v", test.name, m)
		}
		if test.other == nil {
			continue
		}
		if m := matched(t, model(t, test.w, append(modeltest.Nodes{test.other}, test.between[1:]...)...), out); len(m.Problems) == 0 {
			t.Errorf("%s: another node passes", test.name)
		}
	}
}

// Nodes that a higher opset wants written in another way are no difference.
func TestMatchOfHigherOpset(t *testing.T) {
	in := modeltest.Build(t, "opset11")
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})
	m := matched(t, in, out)
	if len(m.Problems) > 0 || !slices.Equal(m.Notes, []string{"opset 11 -> 21"}) || m.Nodes != 4 {
		t.Errorf("%+v", m)
	}
}

// An input with a default that is gone is a note if all initializers were inputs, else a problem.
func TestMatchOfDefaults(t *testing.T) {
	for _, test := range []struct {
		ir            int64
		inputs        []string
		note, problem string
	}{
		{3, []string{"w", "b"}, "", ""},
		{4, []string{"w"}, `inputs with a default are gone, callers cannot replace them: "w"`, ""},
		{8, []string{"w", "b"}, `inputs with a default are gone, callers cannot replace them: "b", "w"`, ""},
		{8, []string{"b"}, "", `input "b" is gone: callers could replace its default`},
	} {
		model := func(inputs ...string) *onnxq.Model {
			m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 8, 4), modeltest.Floats("b", 4)},
				modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("Add", "y", "h b")})
			m.Proto.IrVersion = &test.ir
			for _, name := range inputs {
				in := proto.Clone(m.Proto.Graph.Input[0]).(*onnxpb.ValueInfoProto)
				in.Name = &name
				m.Proto.Graph.Input = append(m.Proto.Graph.Input, in)
			}
			return modeltest.Open(t, modeltest.Write(t, m))
		}
		m, err := compare.MatchWeights(context.Background(), model(test.inputs...), model(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(m.Notes, "\n"); notes != test.note {
			t.Errorf("%+v: notes %q", test, notes)
		}
		if test.problem == "" && len(m.Problems) > 0 || test.problem != "" && !slices.Contains(m.Problems, test.problem) {
			t.Errorf("%+v: problems %q", test, m.Problems)
		}
	}
}

// A function that became another one is a problem, not a weight.
func TestMatchFunctions(t *testing.T) {
	model := func(change func(f *onnxpb.FunctionProto)) *onnxq.Model {
		f := modeltest.Function("f", "x", "y", modeltest.ConstantNode("v", modeltest.Floats("w", 64, 32)), modeltest.Node("MatMul", "m", "x v"), modeltest.Node("Relu", "y", "m"))
		change(f)
		return modeltest.Open(t, modeltest.Write(t, modeltest.Model(nil, modeltest.Nodes{modeltest.Node("local.f", "y", "x")}, f)))
	}
	same := func(*onnxpb.FunctionProto) {}
	for _, c := range []struct {
		change func(f *onnxpb.FunctionProto)
		want   string
	}{
		{same, ""},
		{func(f *onnxpb.FunctionProto) { f.Node[2].OpType = new("Tanh") }, `function "f": Relu node "y" is Tanh`},
		{func(f *onnxpb.FunctionProto) { f.Attribute = []string{"a"} }, `function "f": `},
		{func(f *onnxpb.FunctionProto) { f.Node[0].Attribute[0].T = modeltest.Floats("w", 64, 16) }, `FLOAT [64 16], was FLOAT [64 32]`},
	} {
		m, err := compare.MatchWeights(context.Background(), model(same), model(c.change), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Problems, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
