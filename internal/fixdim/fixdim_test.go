package fixdim_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/fixdim"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

type shape = onnxpb.TensorShapeProto

// info is a value with a dimension for each word: a number, a name, or ? without either.
func info(name string, dims ...any) *onnxpb.ValueInfoProto {
	s := &shape{}
	for _, d := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			if d != "?" {
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
			}
		}
		s.Dim = append(s.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(1)), Shape: s}}}}
}

// body is a graph whose values have the symbols of the model's.
func body() *onnxpb.GraphProto {
	return &onnxpb.GraphProto{
		Name: new("body"), Node: []*onnxpb.NodeProto{modeltest.Node("Relu", "r", "x")},
		Output: []*onnxpb.ValueInfoProto{info("r", "batch", 64)},
	}
}

func model(t *testing.T) *onnxq.Model {
	branch := modeltest.Node("If", "y", "c")
	branch.Attribute = []*onnxpb.AttributeProto{
		{Name: new("then_branch"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: body()},
		{Name: new("else_branch"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: body()},
	}
	m := modeltest.Model(nil, modeltest.Nodes{branch})
	g := m.Proto.Graph
	condition := info("c")
	condition.Type.GetTensorType().ElemType = new(int32(onnxpb.TensorProto_BOOL))
	g.Input = []*onnxpb.ValueInfoProto{condition, info("x", "batch", 64), info("u", "?", 3)}
	g.Output = []*onnxpb.ValueInfoProto{info("y", "batch", 64)}
	g.ValueInfo = []*onnxpb.ValueInfoProto{info("v", 2, "batch", "other")}
	return modeltest.Open(t, modeltest.Write(t, m))
}

func TestFix(t *testing.T) {
	x := model(t).Graph()
	before := proto.CloneOf(x.File.Proto)
	y, err := fixdim.Fix(x, map[string]int64{"batch": 4, "u:0": 5})
	if err != nil {
		t.Fatal(err)
	}
	g := y.File.Proto.Graph
	then := g.Node[0].Attribute[0].G
	for _, check := range []struct{ got, want *onnxpb.ValueInfoProto }{
		{g.Input[1], info("x", 4, 64)}, {g.Input[2], info("u", 5, 3)}, {g.Output[0], info("y", 4, 64)},
		{g.ValueInfo[0], info("v", 2, 4, "other")}, {then.Output[0], info("r", 4, 64)},
	} {
		if !proto.Equal(check.got, check.want) {
			t.Errorf("%v, want %v", check.got, check.want)
		}
	}
	if !proto.Equal(before, x.File.Proto) {
		t.Error("the original changed")
	}
	if y, err = fixdim.Fix(x, map[string]int64{"x:0": 4}); err != nil || !proto.Equal(y.File.Proto.Graph.Output[0], info("y", 4, 64)) {
		t.Errorf("a symbol by its input: %v", err)
	}
}

func TestFixRefuses(t *testing.T) {
	x := model(t).Graph()
	for key, want := range map[string]string{
		"seq": `no dimension of an input is called "seq"; there are "batch", "u:0"`,
		"x:2": "has 2 axes, counted from 0: no axis 2", "x:1": "has the size 64: it cannot become 4",
		"z:0": "no dimension", "x:one": "no dimension",
	} {
		if _, err := fixdim.Fix(x, map[string]int64{key: 4}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := fixdim.Fix(x, map[string]int64{"batch": 0}); err == nil {
		t.Error("size 0")
	}
	if err := fixdim.Check(x.File.Proto, map[string]int64{"batch": 2, "x:0": 3}); err == nil || !strings.Contains(err.Error(), `dimension "batch": it cannot be both 2 and 3`) {
		t.Error(err)
	}
	if err := fixdim.Check(x.File.Proto, map[string]int64{"batch": 2, "x:0": 2}); err != nil {
		t.Error(err)
	}
}

func TestAdopt(t *testing.T) {
	in := []*onnxpb.ValueInfoProto{info("a", "n", "?", 3), info("b", "n"), info("c", "n")}
	adopted := fixdim.Adopt(in, []*onnxpb.ValueInfoProto{info("a", 2, 7, 4), info("b", "n", 5)})
	want := []*onnxpb.ValueInfoProto{info("a", 2, 7, 3), info("b", "n"), info("c", "n")}
	if !slices.EqualFunc(in, want, func(a, b *onnxpb.ValueInfoProto) bool { return proto.Equal(a, b) }) {
		t.Errorf("%v", in)
	}
	if !slices.Equal(adopted, []string{"a:0=2", "a:1=7"}) {
		t.Errorf("adopted: %q", adopted)
	}
}
