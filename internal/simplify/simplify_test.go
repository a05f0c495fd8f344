package simplify_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/simplify"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

type (
	nodes   = modeltest.Nodes
	tensors = modeltest.Tensors
)

var (
	node = modeltest.Node
	ints = modeltest.IntsAttr
	attr = modeltest.IntAttr
)

// numbersOf makes a tensor of numbers around 1, which differ.
func numbersOf(name string, typ dtype.DType, shape ...int64) *onnxpb.TensorProto {
	t := modeltest.Zeros(name, typ, shape...)
	x := make([]float32, int64(len(t.RawData))*8/typ.Bits())
	for i := range x {
		x[i] = 1 + 0.75*float32(math.Sin(float64(len(name)*31+int(name[0])*7+5*i+1)))
	}
	typ.Encode(t.RawData, x)
	return t
}

// standard are the constants of most cases: those of a convolution of 4 to 6 channels.
func standard(typ dtype.DType) tensors {
	of := func(name string, shape ...int64) *onnxpb.TensorProto { return numbersOf(name, typ, shape...) }
	return tensors{
		of("w", 6, 4, 3, 3), of("grouped", 6, 2, 3, 3), of("turned", 4, 6, 3, 3), of("turnedgroups", 4, 3, 3, 3), of("b", 6), of("line", 6, 3, 3),
		of("g", 6), of("h", 6), of("m", 6), of("v", 6), of("g4", 4), of("h4", 4), of("m4", 4), of("v4", 4),
		of("c", 6, 1, 1), of("c4", 1, 6, 1, 1), of("long", 1, 1, 1, 1, 6), of("s", 1), of("wide", 6, 1, 5), of("images", 2, 6, 1, 1), of("across", 5),
		of("k", 4, 6), of("kt", 6, 4), of("row", 1, 6), of("column", 2, 1), of("five", 5),
	}
}

// bn is a BatchNormalization.
func bn(output, input string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return node("BatchNormalization", output, input+" g h m v", attrs...)
}

func bn4(output, input string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return node("BatchNormalization", output, input+" g4 h4 m4 v4", attrs...)
}

// model makes a model of an input x of a shape.
func model(opset int64, typ dtype.DType, shape []int64, list nodes, more ...*onnxpb.TensorProto) *testmodels.Model {
	m := modeltest.Model(slices.Concat(used(list, standard(typ)), more), list)
	m.Proto.OpsetImport[0].Version = &opset
	in := m.Proto.Graph.Input[0].Type.GetTensorType()
	in.ElemType, in.Shape = new(int32(typ)), &onnxpb.TensorShapeProto{}
	for _, d := range shape {
		in.Shape.Dim = append(in.Shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
	}
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	m.Proto.Graph.Output[0].Type.GetTensorType().ElemType = new(int32(typ))
	return m
}

// used are the tensors that nodes, or the graphs in them, read.
func used(list nodes, all tensors) (some tensors) {
	for _, t := range all {
		if slices.ContainsFunc(list, func(n *onnxpb.NodeProto) bool { return slices.Contains(graph.Reads(n), t.GetName()) }) {
			some = append(some, t)
		}
	}
	return some
}

// operators lists the operators of a graph in order, without Constants.
func operators(x *graph.Graph) string {
	var list []string
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if n.GetOpType() != "Constant" {
			list = append(list, n.GetOpType())
		}
	})
	return strings.Join(list, " ")
}

// written writes a graph and returns its path.
func written(t *testing.T, x *graph.Graph) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "simple.onnx")
	if err := convert.WriteFloat(t.Context(), x.File, path, 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	return path
}

// outputOf runs a model in pure Go.
func outputOf(t *testing.T, path string, typ dtype.DType, shape []int64) []float64 {
	t.Helper()
	s, err := evaluate.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := numbersOf("x", typ, shape...)
	made, err := s.Run([]*execute.Tensor{{Name: "x", DType: typ, Dims: shape, Data: in.RawData}})
	if err != nil {
		t.Fatal(err)
	}
	return made[0].Float64s()
}

// check compares the outputs of a model and of the simplified one, and the operators of this.
func check(t *testing.T, m *testmodels.Model, typ dtype.DType, shape []int64, want string, run bool) *simplify.Model {
	t.Helper()
	path := modeltest.Write(t, m)
	x := modeltest.Open(t, path).Graph()
	s, err := simplify.New(x)
	if err != nil {
		t.Fatal(err)
	}
	if got := operators(s.Graph); got != want {
		t.Errorf("%s became %s; want %s", operators(x), got, want)
	}
	again, err := simplify.New(s.Graph)
	if err != nil || again.Graph != s.Graph {
		t.Errorf("simplified again, it changes once more: %v, %v", again.Counts, err)
	}
	if !run {
		return s
	}
	out := written(t, s.Graph)
	was, is := outputOf(t, path, typ, shape), outputOf(t, out, typ, shape)
	if len(was) != len(is) {
		t.Fatalf("%d elements became %d", len(was), len(is))
	}
	limit, largest := map[dtype.DType]float64{dtype.Float32: 1e-5, dtype.Float16: 4e-3, dtype.BFloat16: 4e-2}[typ], 0.0
	for _, v := range was {
		largest = max(largest, math.Abs(v))
	}
	for i := range was {
		if d := math.Abs(was[i] - is[i]); !(d <= limit*largest) {
			t.Fatalf("element %d: %g became %g (%g of the largest)", i, was[i], is[i], d/largest)
		}
	}
	return s
}

func TestSimplify(t *testing.T) {
	image, matrix, cube := []int64{2, 4, 7, 7}, []int64{2, 4}, []int64{2, 3, 4}
	product := node("MatMul", "p", "x k")
	for _, c := range []struct {
		name  string
		shape []int64
		nodes nodes
		want  string
	}{
		{"Conv", image, nodes{node("Conv", "p", "x w b"), bn("y", "p")}, "Conv"},
		{"Conv without bias", image, nodes{node("Conv", "p", "x w", ints("pads", 1, 1, 1, 1)), bn("y", "p")}, "Conv"},
		{"groups", image, nodes{node("Conv", "p", "x grouped", attr("group", 2)), bn("y", "p")}, "Conv"},
		{"ConvTranspose", image, nodes{node("ConvTranspose", "p", "x turned b", ints("strides", 2, 2)), bn("y", "p")}, "ConvTranspose"},
		{"ConvTranspose in groups", image, nodes{node("ConvTranspose", "p", "x turnedgroups", attr("group", 2)), bn("y", "p")}, "ConvTranspose"},
		{"Mul", image, nodes{node("Conv", "p", "x w b"), node("Mul", "y", "c p")}, "Conv"},
		{"Mul by one number", image, nodes{node("Conv", "p", "x w b"), node("Mul", "y", "p s")}, "Conv"},
		{"Add alone", image, nodes{node("Conv", "p", "x w"), node("Add", "y", "p c4")}, "Conv"},
		{"a chain", image, nodes{node("Conv", "p", "x w b"), node("Sub", "q", "c p"), bn("r", "q"), node("Identity", "i", "r"), node("Div", "u", "i c4"), node("Sub", "y", "u s")}, "Conv"},
		{"behind Relu", image, nodes{node("Conv", "p", "x w b"), bn("q", "p"), node("Relu", "r", "q"), node("Mul", "y", "r c")}, "Conv Relu Mul"},
		{"BatchNormalization in front", image, nodes{bn4("n", "x"), node("Conv", "y", "n w b")}, "Conv"},
		{"in front of groups", image, nodes{bn4("n", "x"), node("Conv", "y", "n grouped", attr("group", 2))}, "Conv"},
		{"in front and behind", image, nodes{bn4("n", "x"), node("Conv", "p", "n w", modeltest.StringAttr("auto_pad", "VALID")), bn("y", "p")}, "Conv"},
		{"in front, with zeros beside", image, nodes{bn4("n", "x"), node("Conv", "y", "n w b", ints("pads", 0, 0, 1, 0))}, "BatchNormalization Conv"},
		{"in front, SAME", image, nodes{bn4("n", "x"), node("Conv", "y", "n w b", modeltest.StringAttr("auto_pad", "SAME_UPPER"))}, "BatchNormalization Conv"},
		{"in front of ConvTranspose", image, nodes{bn4("n", "x"), node("ConvTranspose", "y", "n turned b")}, "BatchNormalization ConvTranspose"},
		{"between two, the first takes it", image, nodes{node("Conv", "p", "x w"), bn("q", "p"), node("Conv", "y", "q line3")}, "Conv Conv"},

		{"Gemm", matrix, nodes{node("Gemm", "p", "x k b"), bn("y", "p")}, "Gemm"},
		{"Gemm, transposed, with factors", matrix, nodes{node("Gemm", "p", "x kt b", attr("transB", 1), floatAttr("alpha", 0.5), floatAttr("beta", 3)), bn("q", "p"), node("Mul", "y", "q row")}, "Gemm"},
		{"Gemm without bias", matrix, nodes{node("Gemm", "p", "x k"), node("Add", "y", "row p")}, "Gemm"},
		{"Gemm without bias, times", matrix, nodes{node("Gemm", "p", "x k"), node("Mul", "y", "row p")}, "Gemm"},
		{"Gemm with one number", matrix, nodes{node("Gemm", "p", "x k s", floatAttr("beta", 2)), node("Mul", "y", "p g")}, "Gemm"},
		{"Gemm with a bias for each row", matrix, nodes{node("Gemm", "p", "x k column"), node("Mul", "y", "p g")}, "Gemm Mul"},
		{"BatchNormalization and Gemm", matrix, nodes{bn4("n", "x"), node("Gemm", "y", "n kt b", attr("transB", 1), floatAttr("alpha", 0.5))}, "Gemm"},
		{"BatchNormalization and transposed Gemm", []int64{4, 4}, nodes{bn4("n", "x"), node("Gemm", "y", "n k b", attr("transA", 1))}, "BatchNormalization Gemm"},

		{"MatMul and its bias", cube, nodes{product, node("Add", "y", "p b")}, "MatMul Add"},
		{"MatMul, Mul", cube, nodes{product, node("Mul", "y", "g p")}, "MatMul"},
		{"MatMul, Add, Mul", cube, nodes{product, node("Add", "q", "b p"), node("Mul", "y", "q s")}, "MatMul Add"},
		{"MatMul, Mul, Add", cube, nodes{product, node("Mul", "q", "p row"), node("Sub", "y", "q h")}, "MatMul Add"},
		{"MatMul, two Adds", cube, nodes{product, node("Add", "q", "b p"), node("Add", "y", "q row")}, "MatMul Add"},
		{"MatMul, BatchNormalization", matrix, nodes{product, bn("y", "p")}, "MatMul Add"},
		{"BatchNormalization, MatMul", matrix, nodes{bn4("n", "x"), node("MatMul", "y", "n k")}, "MatMul Add"},
		{"BatchNormalization, MatMul, Add", matrix, nodes{bn4("n", "x"), node("MatMul", "p", "n k"), node("Add", "y", "p b")}, "MatMul Add"},
		{"behind Transpose and Identity", cube, nodes{node("Transpose", "t", "kt", ints("perm", 1, 0)), node("Identity", "i", "t"), node("MatMul", "p", "x i"), node("Mul", "y", "p g")}, "MatMul"},

		{"another rank", cube, nodes{product, node("Mul", "y", "p long")}, "MatMul Mul"},
		{"more images", []int64{1, 4, 7, 7}, nodes{node("Conv", "p", "x w"), node("Mul", "y", "p images")}, "Conv Mul"},
		{"numbers across", image, nodes{node("Conv", "p", "x w"), node("Mul", "y", "p across")}, "Conv Mul"},
		{"numbers in two directions", image, nodes{node("Conv", "p", "x w"), node("Mul", "y", "p wide")}, "Conv Mul"},
		{"divided by the product", image, nodes{node("Conv", "p", "x w"), node("Div", "y", "c p")}, "Conv Div"},
		{"times itself", image, nodes{node("Conv", "p", "x w"), node("Mul", "y", "p p")}, "Conv Mul"},
		{"no constant", image, nodes{node("ReduceMean", "r", "x"), node("Conv", "p", "x w"), node("Mul", "y", "p r")}, "ReduceMean Conv Mul"},
		{"two readers", image, nodes{node("Conv", "p", "x w"), bn("q", "p"), node("Add", "y", "p q")}, "Conv BatchNormalization Add"},
		{"by zero", image, nodes{node("Conv", "p", "x w"), node("Div", "y", "p nought")}, "Conv Div"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var more tensors
			for _, extra := range []*onnxpb.TensorProto{numbersOf("line3", dtype.Float32, 2, 6, 1, 1), modeltest.Zeros("nought", dtype.Float32, 1)} {
				more = append(more, used(c.nodes, tensors{extra})...)
			}
			m := model(17, dtype.Float32, c.shape, c.nodes, more...)
			check(t, m, dtype.Float32, c.shape, c.want, c.name != "by zero")
		})
	}
}

// One number of a tensor is changed, for cases in which statistics are broken.
func with(t *onnxpb.TensorProto, v float32) *onnxpb.TensorProto {
	typ := dtype.DType(t.GetDataType())
	typ.Encode(t.RawData[:typ.Bits()/8], []float32{v})
	return t
}

// What is not exact stays.
func TestLeft(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	conv := func() *onnxpb.NodeProto { return node("Conv", "p", "x w b") }
	training := bn("y", "p", attr("training_mode", 1))
	training.Output = append(training.Output, "mean", "var")
	statistics := bn("y", "p")
	statistics.Output = append(statistics.Output, "mean", "var", "saved", "savedvar")
	for _, c := range []struct {
		name  string
		opset int64
		nodes nodes
		more  tensors
		want  string
	}{
		{"training", 17, nodes{conv(), training}, nil, "Conv BatchNormalization"},
		{"statistics", 9, nodes{conv(), statistics}, nil, "Conv BatchNormalization"},
		{"training of opset 6", 6, nodes{conv(), bn("y", "p")}, nil, "Conv BatchNormalization"},
		{"test of opset 6", 6, nodes{conv(), bn("y", "p", attr("is_test", 1))}, nil, "Conv"},
		{"test of opset 1", 1, nodes{conv(), bn("y", "p", attr("is_test", 1), ints("consumed_inputs", 0, 0, 0, 1, 1))}, nil, "Conv"},
		{"each element", 7, nodes{conv(), bn("y", "p", attr("spatial", 0))}, nil, "Conv BatchNormalization"},
		{"broadcast of opset 6", 6, nodes{conv(), node("Mul", "y", "p g", attr("broadcast", 1), attr("axis", 1))}, nil, "Conv"},
		{"broadcast along the last axis", 6, nodes{conv(), node("Mul", "y", "p g", attr("broadcast", 1))}, nil, "Conv Mul"},
		{"no broadcast of opset 6", 6, nodes{conv(), node("Mul", "y", "p s")}, nil, "Conv Mul"},
		{"negative variance", 17, nodes{conv(), node("BatchNormalization", "y", "p g h m v1")}, tensors{with(numbersOf("v1", dtype.Float32, 6), -1)}, "Conv BatchNormalization"},
		{"no variance", 17, nodes{conv(), node("BatchNormalization", "y", "p g h m v1", floatAttr("epsilon", 0))}, tensors{with(numbersOf("v1", dtype.Float32, 6), 0)}, "Conv BatchNormalization"},
		{"variance of 0", 17, nodes{conv(), node("BatchNormalization", "y", "p g h m v1")}, tensors{with(numbersOf("v1", dtype.Float32, 6), 0)}, "Conv"},
		{"NaN", 17, nodes{conv(), node("BatchNormalization", "y", "p g h m v1")}, tensors{with(numbersOf("v1", dtype.Float32, 6), float32(math.NaN()))}, "Conv BatchNormalization"},
		{"infinity", 17, nodes{conv(), node("Mul", "y", "p c1")}, tensors{with(numbersOf("c1", dtype.Float32, 1), float32(math.Inf(1)))}, "Conv Mul"},
		{"far too large", 17, nodes{conv(), node("Mul", "y", "p c1")}, tensors{with(numbersOf("c1", dtype.Float32, 1), 0x1p100)}, "Conv Mul"},
		{"a computed scale", 17, nodes{conv(), node("Relu", "r", "g"), node("BatchNormalization", "y", "p r h m v")}, nil, "Conv Relu BatchNormalization"},
		{"a computed weight", 17, nodes{node("Relu", "r", "w"), node("Conv", "p", "x r b"), bn("y", "p")}, nil, "Relu Conv BatchNormalization"},
		{"a large weight that others read", 17, nodes{node("Conv", "p", "x big"), node("Mul", "q", "p s"), node("ReduceMean", "r", "big"), node("Add", "y", "q r")},
			tensors{numbersOf("big", dtype.Float32, 200, 4, 3, 3)}, "Conv Mul ReduceMean Add"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, model(c.opset, dtype.Float32, image, c.nodes, c.more...), dtype.Float32, image, c.want, false)
		})
	}
}

// A small weight that another node reads is stored twice.
func TestShared(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	m := model(17, dtype.Float32, image, nodes{
		node("Conv", "p", "x w b"), bn("q", "p"), node("Conv", "r", "x w b"), node("Mul", "u", "r s"), node("Conv", "o", "x w b"), node("Sum", "y", "q u o"),
	})
	s := check(t, m, dtype.Float32, image, "Conv Conv Conv Sum", true)
	if n := len(s.Graph.File.Proto.Graph.Initializer); n != 6 {
		t.Errorf("%d tensors, want a weight and a bias for each Conv", n)
	}
}

// Values that the model or others return stay.
func TestReturned(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	m := model(17, dtype.Float32, image, nodes{node("Conv", "p", "x w b"), bn("y", "p")})
	m.Proto.Graph.Output = append(m.Proto.Graph.Output, &onnxpb.ValueInfoProto{Name: new("p"), Type: m.Proto.Graph.Output[0].Type})
	check(t, m, dtype.Float32, image, "Conv BatchNormalization", true)

	m = model(17, dtype.Float32, image, nodes{node("Conv", "p", "x w b"), bn("y", "p")})
	m.Proto.Graph.Input = append(m.Proto.Graph.Input, &onnxpb.ValueInfoProto{Name: new("w"), Type: m.Proto.Graph.Input[0].Type})
	check(t, m, dtype.Float32, image, "Conv BatchNormalization", false) // callers may replace the weight
}

// In float16 a weight that would leave its range, or become too small, stays.
func TestHalf(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	of := func(v float32) *onnxpb.TensorProto { return with(modeltest.Zeros("c1", dtype.Float16, 1), v) }
	for _, typ := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		check(t, model(17, typ, image, nodes{node("Conv", "p", "x w b"), bn("q", "p"), node("Mul", "y", "q c")}), typ, image, "Conv", true)
		check(t, model(17, typ, []int64{2, 4}, nodes{bn4("n", "x"), node("MatMul", "p", "n k"), node("Add", "y", "p b")}), typ, []int64{2, 4}, "MatMul Add", true)
	}
	for factor, want := range map[float32]string{8: "Conv", 60000: "Conv Mul", 0x1p-13: "Conv Mul"} {
		m := model(17, dtype.Float16, image, nodes{node("Conv", "p", "x w"), node("Mul", "y", "p c1")}, of(factor))
		check(t, m, dtype.Float16, image, want, false)
	}
}

// Weights may be in bodies of nodes, in functions and in Constant nodes.
func TestBodies(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	constant := func(name string, shape ...int64) *onnxpb.NodeProto {
		made := numbersOf(name, dtype.Float32, shape...)
		return modeltest.ConstantNode(name, made)
	}
	body := nodes{constant("w", 6, 4, 3, 3), node("Conv", "fp", "fx w"), constant("g", 6), constant("h", 6), constant("m", 6), constant("v", 6), node("BatchNormalization", "fy", "fp g h m v")}
	m := modeltest.Model(nil, nodes{node("local.block", "y", "x")}, modeltest.Function("block", "fx", "fy", body...))
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	check(t, m, dtype.Float32, image, "block Conv", true)

	inside := nodes{node("Conv", "tp", "x w b"), node("BatchNormalization", "ty", "tp g h m v")}
	own := slices.DeleteFunc(standard(dtype.Float32), func(t *onnxpb.TensorProto) bool { return len(used(inside, tensors{t})) == 0 })
	branch := modeltest.GraphAttr("then_branch", own, inside...)
	other := modeltest.GraphAttr("else_branch", nil, node("Conv", "ep", "x line4"), node("Mul", "ey", "ep s"))
	for _, taken := range []byte{0, 1} {
		cond := modeltest.Zeros("cond", dtype.Bool)
		cond.RawData[0] = taken
		m = model(17, dtype.Float32, image, nodes{modeltest.ConstantNode("cond", cond), node("If", "y", "cond", proto.CloneOf(branch), proto.CloneOf(other))},
			numbersOf("line4", dtype.Float32, 6, 4, 3, 3), numbersOf("s", dtype.Float32, 1))
		m.Proto.Graph.Initializer = m.Proto.Graph.Initializer[len(m.Proto.Graph.Initializer)-2:]
		check(t, m, dtype.Float32, image, "If Conv Conv", true)
	}
}

// A constant that is read for its shape alone goes, and one that nothing reads.
func TestUnread(t *testing.T) {
	shape := []int64{3, 5}
	m := model(17, dtype.Float32, shape, nodes{
		node("Shape", "d", "large"), node("Shape", "e", "large", attr("start", -1)), node("Size", "n", "large"), node("Concat", "all", "d e", attr("axis", 0)),
		node("Cast", "half", "broad", attr("to", int64(dtype.Float16))), node("Transpose", "turn", "half", ints("perm", 1, 0)), node("Shape", "ww", "turn"),
		node("Slice", "first", "ww nil one"), node("Add", "plus", "all first"),
		node("Add", "sum", "plus n"), node("Cast", "f", "sum", attr("to", int64(dtype.Float32))), node("ReduceSum", "r", "f"), node("Mul", "y", "x r"),
	}, numbersOf("large", dtype.Float32, 70, 30), numbersOf("broad", dtype.Float32, 20, 40), numbersOf("lost", dtype.Float32, 9),
		modeltest.Integers("nil", 0), modeltest.Integers("one", 1))
	s := check(t, m, dtype.Float32, shape, "Concat Slice Add Add Cast ReduceSum Mul", true)
	if s.Shapes != 4 || s.Unread != 1 || len(s.Graph.File.Proto.Graph.Initializer) != 2 {
		t.Errorf("%+v, and %d tensors are left", s.Counts, len(s.Graph.File.Proto.Graph.Initializer))
	}
}

func floatAttr(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}
