package opset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
)

func TestRefuses(t *testing.T) {
	cases := []struct {
		name     string
		from, to int64
		inputs   string
		nodes    string
		want     string
	}{
		{"unknown operator", 11, 13, "x", `y = Conjure(x)`, `operator Conjure (node "y"): is no operator of ai.onnx, so`},
		{"experimental operator after its time", 10, 13, "x", `y = Affine(x)`, `operator Affine (node "y"): is no operator`},
		{"experimental operator without its factor", 7, 13, "x:float", `y = ScaledTanh<beta=2.0>(x)`, `required attribute alpha is missing`},
		{"operator from the future", 8, 13, "c x", `y = Where(c, x, x)`, `operator Where (node "y"): is not defined at opset 8`},
		{"too old", 0, 13, "x", `y = Relu(x)`, `opset 0 is older than 1`},
		{"operator not defined yet", 5, 13, "x", `y = Sin(x)`, `operator Sin (node "y"): is not defined at opset 5`},
		{"second input too long", 6, 13, "x:float[2,3] b:float[2,3]", `y = Add<broadcast=1, axis=1>(x, b)`, `operator Add (node "y") changed at opset 7: its second input reaches beyond`},
		{"axis of unknown rank, broadcast", 6, 8, "x b", `y = Add<broadcast=1, axis=1>(x, b)`, `the rank of an input is unknown`},
		{"slope of unknown rank", 6, 13, "x b", `y = PRelu(x, b)`, `the rank of its slope is unknown`},
		{"outputs of testing", 6, 13, "x s b m v", "h, y = BatchNormalization<is_test=1>(x, s, b, m, v)", `have no content with is_test, but one is used`},
		{"fill with two inputs", 6, 13, "x", `y = ConstantFill(x, x)`, `it has more than one input`},
		{"cast to no type", 5, 13, "x", `y = Cast<to="real">(x)`, `its attribute to, "real", names no type`},
		{"cast to undefined", 5, 13, "x", `y = Cast<to="undefined">(x)`, `its attribute to, "undefined", names no type`},
		{"fill without a shape", 6, 13, "x", `y = ConstantFill()`, `required attribute shape is missing`},
		{"half a power", 1, 13, "x", `y = GlobalLpPool<p=2.5>(x)`, `its power 2.5 is no positive integer`},
		{"pooling without a kernel", 1, 13, "x", `y = LpPool(x)`, `required attribute kernel_shape is missing`},
		{"pad without paddings", 1, 13, "x", `y = Pad(x)`, `required attribute paddings is missing`},
		{"reshape without a shape", 4, 13, "x", `y = Reshape(x)`, `required attribute shape is missing`},
		{"split without an axis", 1, 13, "x", `y, z = Split(x)`, `required attribute axis is missing`},
		{"split by an input, too low", 1, 11, "x s", `y, z = Split<axis=0>(x, s)`, `exists again only from opset 13 on`},
		{"tile of unknown rank, too low", 5, 8, "x t a", `y = Tile(x, t, a)`, `the rank of its input is unknown`},
		{"tile without an axis", 5, 13, "x:float[2] t", `y = Tile(x, t)`, `its input tiles or axis is missing`},
		{"upsample without a scale", 6, 13, "x", `y = Upsample<height_scale=2.0>(x)`, `required attribute width_scale is missing`},
		{"too new", 21, 29, "x", `y = Relu(x)`, `opset 29 is newer than 28`},
		{"mask at 7", 7, 10, "x", "y, m = Dropout(x)\nz = Mul(y, m)", `operator Dropout (node "y") changed at opset 10: its mask is used`},
		{"mask at 10", 10, 12, "x", "y, m = Dropout(x)\nz = Not(m)", `changed at opset 12: its mask is used`},
		{"mask as output", 7, 21, "x", `h, y = Dropout(x)`, `its mask is used`},
		{"saved mean", 9, 14, "x s b m v", "h, rm, rv, y, sv = BatchNormalization(x, s, b, m, v)", `saved_mean`},
		{"statistics of elements", 7, 9, "x s b m v", "y, rm, rv, sm, sv = BatchNormalization<spatial=0>(x, s, b, m, v)", `spatial=0 was removed`},
		{"removed coordinates, linear", 11, 13, "x r s", `y = Resize<mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, r, s)`, `tf_half_pixel_for_nn`},
		{"removed coordinates, ceil", 11, 13, "x r s", `y = Resize<nearest_mode="ceil", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, r, s)`, `tf_half_pixel_for_nn`},
		{"erf of integers", 9, 13, "x:int32", `y = Erf(x)`, `no longer takes integers`},
		{"logarithm of integers", 18, 28, "x:int64", `y = ReduceLogSum(x)`, `no longer takes integers`},
		{"bound of unknown type", 7, 13, "x", `y = Clip<min=0.5>(x)`, `element type of its input is unknown, and CastLike exists only from opset 15 on`},
		{"unsqueeze without axes", 11, 13, "x", `y = Unsqueeze(x)`, `required attribute axes is missing`},
		{"topk without k", 9, 13, "x", `y, i = TopK(x)`, `required attribute k is missing`},
		{"groupnorm without groups", 18, 21, "x s b", `y = GroupNormalization(x, s, b)`, `required attribute num_groups is missing`},
		{"no such axis", 14, 21, "x s", `y = SimplifiedLayerNormalization<axis=-4611686018427387904>(x, s)`, `its input has no axis -4611686018427387904`},
		{"axis before the first", 14, 21, "x:float[2,3] s", `y = SimplifiedLayerNormalization<axis=-3>(x, s)`, `its input has no axis -3`},
		{"axis after the last", 14, 21, "x:float[2,3] s", `y = SimplifiedLayerNormalization<axis=2>(x, s)`, `its input has no axis 2`},
		{"axis of unknown rank", 14, 21, "x s", `y = SimplifiedLayerNormalization<axis=1>(x, s)`, `the rank of its input is unknown`},
		{"integer for a float", 7, 13, "x:float", `y = Clip<min=1>(x)`, `attribute min is of type INT, want FLOAT`},
		{"float for an integer", 9, 13, "x", `y, i = TopK<k=1.5>(x)`, `attribute k is of type FLOAT, want INT`},
		{"no output", 9, 13, "x", "y = Relu(x)\n = Erf(x)", `operator Erf (node "") changed at opset 13: it has no output`},
		{"scan without body", 8, 9, "x", `y = Scan<num_scan_inputs=1>("", x)`, `do not match its body`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			// The first node is adapted before the one that fails.
			m := graphtext.Model(t, c.from, "first "+c.inputs, "q = Squeeze<axes=[0]>(first)\n"+c.nodes, "q y")
			before := proto.Clone(m)
			err := Raise(m, c.to, freshNames())
			if !errors.Is(err, ErrRaise) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			if !proto.Equal(m, before) {
				t.Error("the model changed")
			}
		})
	}
}

func TestErrorTellsNode(t *testing.T) {
	m := graphtext.Model(t, 7, "x", "y, m = Dropout(x)", "y m")
	m.Graph.Node[0].Name = proto.String("drop")
	var e *Error
	if err := Raise(m, 13, freshNames()); !errors.As(err, &e) || e.Op != "Dropout" || e.Node != "drop" || e.Step != 10 {
		t.Errorf("got %#v", err)
	}
}

func TestLeavesHigherOpsets(t *testing.T) {
	m := graphtext.Model(t, 21, "x", `y = Conjure(x)`, "y")
	before := proto.Clone(m)
	if err := Raise(m, 21, freshNames()); err != nil || !proto.Equal(m, before) {
		t.Errorf("error %v, model %v", err, m)
	}
}

func TestImports(t *testing.T) {
	id := func(domain string, version int64) *onnxpb.OperatorSetIdProto {
		return &onnxpb.OperatorSetIdProto{Domain: &domain, Version: &version}
	}
	cases := []struct {
		name         string
		nodes        string
		before, want []*onnxpb.OperatorSetIdProto
	}{
		{"others stay", `y = Relu(x)`, []*onnxpb.OperatorSetIdProto{id("acme", 7), id("", 11)}, []*onnxpb.OperatorSetIdProto{id("acme", 7), id("", 21)}},
		{"ai.onnx", `y = Relu(x)`, []*onnxpb.OperatorSetIdProto{id("ai.onnx", 11)}, []*onnxpb.OperatorSetIdProto{id("ai.onnx", 21)}},
		{"twice", `y = Relu(x)`, []*onnxpb.OperatorSetIdProto{id("", 11), id("ai.onnx", 11)}, []*onnxpb.OperatorSetIdProto{id("", 21), id("ai.onnx", 21)}},
		{"missing", `y = acme::Relu(x)`, []*onnxpb.OperatorSetIdProto{id("acme", 7)}, []*onnxpb.OperatorSetIdProto{id("acme", 7), id("", 21)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, 11, "x", c.nodes, "y")
			m.OpsetImport = c.before
			if err := Raise(m, 21, freshNames()); err != nil {
				t.Fatal(err)
			}
			equal := slices.EqualFunc(m.OpsetImport, c.want, func(a, b *onnxpb.OperatorSetIdProto) bool { return proto.Equal(a, b) })
			if !equal {
				t.Errorf("got %v, want %v", m.OpsetImport, c.want)
			}
		})
	}

	m := graphtext.Model(t, 11, "x", `y = Relu(x)`, "y")
	m.OpsetImport = []*onnxpb.OperatorSetIdProto{id("", 11), id("ai.onnx", 13)}
	if err := Raise(m, 21, freshNames()); err == nil || !strings.Contains(err.Error(), "imported twice, at opsets 11 and 13") {
		t.Errorf("error %v for two opsets", err)
	}
	m.OpsetImport = nil
	if err := Raise(m, 21, freshNames()); err == nil || !strings.Contains(err.Error(), "does not import ai.onnx") {
		t.Errorf("error %v for an operator without an import", err)
	}
}

func TestIR(t *testing.T) {
	for opset, want := range map[int64]int64{7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 14: 7, 15: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 27: 13, 28: 14} {
		if got := IRFor(opset); got != want {
			t.Errorf("IRFor(%d) = %d, want %d", opset, got, want)
		}
	}
	for _, c := range []struct{ before, want int64 }{{3, 10}, {12, 12}} {
		m := graphtext.Model(t, 11, "x", `y = Relu(x)`, "y")
		m.IrVersion = &c.before
		if err := Raise(m, 21, freshNames()); err != nil || m.GetIrVersion() != c.want {
			t.Errorf("from IR %d: error %v, IR %d, want %d", c.before, err, m.GetIrVersion(), c.want)
		}
	}
}

// A node that changes is replaced, with its extras, and others are not.
func TestNodesKeepExtras(t *testing.T) {
	m := graphtext.Model(t, 11, "x", "h = Squeeze<axes=[0]>(x)\ny = Relu(h)", "y")
	squeeze, relu := m.Graph.Node[0], m.Graph.Node[1]
	squeeze.DocString = proto.String("doc")
	squeeze.MetadataProps = []*onnxpb.StringStringEntryProto{{Key: proto.String("k"), Value: proto.String("v")}}
	unknown := []byte{0xf8, 0x07, 0x01} // field 127, varint 1
	squeeze.ProtoReflect().SetUnknown(unknown)
	before := proto.CloneOf(squeeze)
	if err := Raise(m, 13, freshNames()); err != nil {
		t.Fatal(err)
	}
	if len(m.Graph.Node) != 2 || m.Graph.Node[1] != relu {
		t.Errorf("nodes %v", m.Graph.Node)
	}
	n := m.Graph.Node[0]
	if n.GetDocString() != "doc" || len(n.MetadataProps) != 1 || string(n.ProtoReflect().GetUnknown()) != string(unknown) || len(n.Input) != 2 {
		t.Errorf("node lost fields: %v", n)
	}
	if !proto.Equal(squeeze, before) {
		t.Errorf("the node itself has changed: %v", squeeze)
	}
}

func TestSubgraphs(t *testing.T) {
	inner := graphtext.Model(t, 11, "", `b = Softmax<axis=1>(x)`, "b").Graph
	branch := &onnxpb.GraphProto{Node: graphtext.Nodes(t, "c = Identity(k)"), Output: inner.Output}
	branch.Node[0].Attribute = []*onnxpb.AttributeProto{graphAttribute("then_branch", inner)}
	*branch.Node[0].OpType = "If"
	m := graphtext.Model(t, 11, "k x:float[2,3]", "y = If(k)\nz = Squeeze<axes=[0]>(y)", "z")
	m.Graph.Node[0].Attribute = []*onnxpb.AttributeProto{graphAttribute("then_branch", branch)}
	if err := Raise(m, 21, freshNames()); err != nil {
		t.Fatal(err)
	}
	want := `y = If<then_branch={}>(k)
	() => (b)
	c = If<then_branch={}>(k)
		() => (b)
		b = Softmax<axis=-1>(x)
z = Squeeze(y, [0])
`
	if got := graphtext.Print(m.Graph.Node, m.Graph.Initializer); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A value read only within a subgraph is in use.
func TestUseInSubgraph(t *testing.T) {
	inner := graphtext.Model(t, 7, "", `b = Relu(m)`, "b").Graph
	m := graphtext.Model(t, 7, "k x", "h, m = Dropout(x)\ny = If(k)", "y")
	m.Graph.Node[1].Attribute = []*onnxpb.AttributeProto{graphAttribute("then_branch", inner)}
	if err := Raise(m, 13, freshNames()); err == nil {
		t.Error("a mask in use was dropped")
	}
}

func TestTrainingGraphs(t *testing.T) {
	m := graphtext.Model(t, 11, "x", `y = Relu(x)`, "y")
	m.TrainingInfo = []*onnxpb.TrainingInfoProto{{Algorithm: graphtext.Model(t, 11, "x", `z = Squeeze<axes=[0]>(x)`, "z").Graph}}
	if err := Raise(m, 13, freshNames()); err != nil {
		t.Fatal(err)
	}
	g := m.TrainingInfo[0].Algorithm
	if got, want := graphtext.Print(g.Node, g.Initializer), "z = Squeeze(x, [0])\n"; got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestFunctions(t *testing.T) {
	function := func(name string, opset int64, nodes string) *onnxpb.FunctionProto {
		return &onnxpb.FunctionProto{
			Name: &name, Domain: proto.String("local"), Input: []string{"x"}, Output: []string{"y"},
			Node:        graphtext.Nodes(t, nodes),
			OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: &opset}},
		}
	}
	cases := []struct {
		name          string
		opset, want   int64
		before, after string
	}{
		{"same definitions", 16, 16, `y = Relu(x)`, `y = Relu(x)`},
		{"compatible definitions", 13, 21, `y = Relu(x)`, `y = Relu(x)`},
		{"newer than the model", 22, 22, `y = Relu(x)`, `y = Relu(x)`},
		{"constants are nodes", 11, 21, `y = Squeeze<axes=[0]>(x)`, `
			axes~1 = Constant<value=[0]>()
			y = Squeeze(x, axes~1)`},
		{"parameter", 11, 21, `y = Squeeze<axes=@a>(x)`, `
			y_Constant~1 = Constant<value_ints=@a>()
			y = Squeeze(x, y_Constant~1)`},
		{"parameter of unknown type", 7, 21, `y = Clip<min=@lowest>(x)`, `
			y_Constant~1 = Constant<value_float=@lowest>()
			y_CastLike~2 = CastLike(y_Constant~1, x)
			y = Clip(x, y_CastLike~2)`},
		{"parameter that stays one", 11, 21, `y = Softmax<axis=@axis>(x)`, `
			y_Flatten~1 = Flatten<axis=@axis>(x)
			y_Shape~2 = Shape(x)
			y~3 = Softmax<axis=-1>(y_Flatten~1)
			y = Reshape<allowzero=1>(y~3, y_Shape~2)`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, 17, "x", `y = local::f(x)`, "y")
			f := function("f", c.opset, c.before)
			m.Functions = []*onnxpb.FunctionProto{f}
			if err := Raise(m, 21, freshNames()); err != nil {
				t.Fatal(err)
			}
			if got, want := graphtext.Print(f.Node, nil), graphtext.Unindent(c.after); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			if got, _ := Of(f.OpsetImport); got != c.want {
				t.Errorf("opset %d, want %d", got, c.want)
			}
		})
	}

	// A function that gets new operators and the model come to one opset.
	for _, c := range []struct{ model, function, to, want int64 }{
		{17, 17, 21, 21}, {17, 16, 21, 21}, {22, 16, 21, 22}, {22, 22, 21, 22}, {17, 23, 21, 23}, {21, 23, 13, 23},
	} {
		t.Run(fmt.Sprintf("growing/%d with %d to %d", c.model, c.function, c.to), func(t *testing.T) {
			m := graphtext.Model(t, c.model, "x", `y = local::f(x)`, "y")
			f, other := function("f", c.function, `y = Relu(x)`), function("g", 16, `y = Relu(x)`)
			m.Functions = []*onnxpb.FunctionProto{f, other}
			if err := Raise(m, c.to, freshNames(), f); err != nil {
				t.Fatal(err)
			}
			ofModel, _ := Of(m.OpsetImport)
			ofFunction, _ := Of(f.OpsetImport)
			ofOther, _ := Of(other.OpsetImport)
			if ofModel != c.want || ofFunction != c.want || ofOther != 16 {
				t.Errorf("model at %d, function at %d, the other one at %d, want %d, %d, 16", ofModel, ofFunction, ofOther, c.want, c.want)
			}
		})
	}

	for _, c := range []struct{ name, node string }{
		{"string that decides", `y = GridSample<mode=@m>(x, x)`},
		{"integer that decides", `y = SimplifiedLayerNormalization<axis=@a>(x, x)`},
		{"float that decides", `y = SimplifiedLayerNormalization<epsilon=@e>(x, x)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, 17, "x", `y = local::f(x)`, "y")
			m.Functions = []*onnxpb.FunctionProto{function("f", 16, "h = ReduceMean<axes=[0]>(x)\n"+c.node)}
			if err := Raise(m, 21, freshNames()); err == nil || !strings.Contains(err.Error(), "is a parameter of a function") {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("operator redefined", func(t *testing.T) {
		m := graphtext.Model(t, 11, "x", `y = Softmax(x)`, "y")
		f := function("Softmax", 11, `y = Exp(x)`)
		f.Domain = proto.String("")
		m.Functions = []*onnxpb.FunctionProto{f}
		if err := Raise(m, 13, freshNames()); err != nil {
			t.Fatal(err)
		}
		if got, want := graphtext.Print(m.Graph.Node, nil), "y = Softmax(x)\n"; got != want {
			t.Errorf("got %swant %s", got, want)
		}
	})
}

// The table is in order, and every step above oldest that has an adapter is
// one of its operator's versions.
func TestTable(t *testing.T) {
	for op, h := range operators {
		if !slices.IsSorted(h.versions) || h.versions[len(h.versions)-1] > newest {
			t.Errorf("%s: versions %v", op, h.versions)
		}
		if got := h.at(newest); got != h.versions[len(h.versions)-1] {
			t.Errorf("%s: at %d in force is %d", op, newest, got)
		}
		for v := range h.adapters {
			if !slices.Contains(h.versions, v) || v <= oldest {
				t.Errorf("%s: adapter at %d", op, v)
			}
		}
	}
}

// freshNames returns a namer that numbers its names.
func freshNames() func(string) string {
	n := 0
	return func(hint string) string {
		n++
		return fmt.Sprint(hint, "~", n)
	}
}
