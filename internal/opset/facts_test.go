package opset

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
)

func TestFacts(t *testing.T) {
	const (
		f16 = onnxpb.TensorProto_FLOAT16
		f32 = onnxpb.TensorProto_FLOAT
		i32 = onnxpb.TensorProto_INT32
		i64 = onnxpb.TensorProto_INT64
	)
	cases := []struct {
		name, inputs, nodes string
		elem                onnxpb.TensorProto_DataType
		rank                int
	}{
		{"input", "y:float16[2,3]", `z = Relu(y)`, f16, 2},
		{"scalar", "y:float[]", `z = Relu(y)`, f32, 0},
		{"input of unknown rank", "y:float16", `z = Relu(y)`, f16, unknownRank},
		{"nothing known", "x", `y = Relu(x)`, unknown, unknownRank},
		{"like its input", "x:float16[2]", `y = Relu(x)`, f16, 1},
		{"second output", "x:float[2]", `v, y = TopK(x)`, unknown, unknownRank},
		{"second part", "x:float[2,3]", `v, y = Split<axis=1>(x)`, f32, 2},
		{"another domain", "x:float[2]", `y = acme::Relu(x)`, unknown, unknownRank},
		{"loop", "x:float[2]", "a = Add(b, x)\nb = Relu(a)\ny = Relu(b)", unknown, unknownRank},
		{"no input", "x", `y = Relu()`, unknown, unknownRank},
		{"cast", "x:float[2]", `y = Cast<to=7>(x)`, i64, 1},
		{"dequantized", "x:int8[2,3] s:float16", `y = DequantizeLinear(x, s)`, f16, 2},
		{"where", "c:bool[2] x:int32[2,3]", `y = Where(c, x, x)`, i32, 2},
		{"initializer", "", `y = Relu(stored)`, f32, 3},
		{"broadcast", "a:float[3] b:float[2,3]", `y = Mul(a, b)`, f32, 2},
		{"broadcast with an unknown", "a:float b:float[2,3]", `y = Mul(b, a)`, f32, unknownRank},
		{"product", "a:float[2,3] b:float[4,3,5]", `y = MatMul(a, b)`, f32, 3},
		{"product with a vector", "a:float[2,3] b:float[3]", `y = MatMul(a, b)`, f32, unknownRank},
		{"gemm", "a:float b:float", `y = Gemm(a, b)`, f32, 2},
		{"gather", "x:float[2,3] i:int64[4,5]", `y = Gather(x, i)`, f32, 3},
		{"unsqueeze", "x:float[2]", `y = Unsqueeze<axes=[0,2]>(x)`, f32, 3},
		{"unsqueeze by an input", "x:float[2] a:int64[1]", `y = Unsqueeze(x, a)`, f32, unknownRank},
		{"squeeze", "x:float[1,2,1]", `y = Squeeze<axes=[0,2]>(x)`, f32, 1},
		{"squeeze of too much", "x:float[1]", `y = Squeeze<axes=[0,1,2,3]>(x)`, f32, unknownRank},
		{"transpose", "x:float", `y = Transpose<perm=[1,0,2]>(x)`, f32, 3},
		{"reshape", "x:float s:int64[4]", `y = Reshape(x, s)`, f32, 4},
		{"reshape to a stored shape", "x:float", `y = Reshape(x, shape)`, f32, 2},
		{"reshape to a computed shape", "x:float z:float", "s = Shape(z)\ny = Reshape(x, s)", f32, unknownRank},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := graphtext.Model(t, 11, c.inputs, c.nodes, "")
			m.Graph.Initializer = []*onnxpb.TensorProto{
				{Name: proto.String("stored"), DataType: proto.Int32(1), Dims: []int64{1, 2, 3}},
				{Name: proto.String("shape"), DataType: proto.Int32(7), Dims: []int64{2}},
			}
			s := newRaiser(m, 13, freshNames()).scope(m.Graph, nil)
			if got := s.elemType("y"); got != c.elem {
				t.Errorf("element type %v, want %v", got, c.elem)
			}
			if got := s.rank("y"); got != c.rank {
				t.Errorf("rank %d, want %d", got, c.rank)
			}
		})
	}
}

func TestFactsOfConstants(t *testing.T) {
	m := graphtext.Model(t, 11, "x", `s = Constant()`, "")
	m.Graph.Node[0].Attribute = []*onnxpb.AttributeProto{tensorAttribute("value", floatTensor([]float32{1, 2}, 2))}
	outer := newRaiser(m, 13, freshNames()).scope(m.Graph, nil)
	inner := outer.model.scope(&onnxpb.GraphProto{Node: graphtext.Nodes(t, `y = Reshape(x, s)`)}, outer)
	if elem, rank := inner.elemType("s"), inner.rank("y"); elem != onnxpb.TensorProto_FLOAT || rank != 2 {
		t.Errorf("element type %v, rank %d", elem, rank)
	}
}

// An attribute that a function's caller sets tells nothing, whatever it holds.
func TestFactsOfParameters(t *testing.T) {
	for _, node := range []string{`y = Cast<to=7>(x)`, `y = Transpose<perm=[1,0]>(x)`, `y = Squeeze<axes=[0]>(x)`, `y = Unsqueeze<axes=[0]>(x)`} {
		m := graphtext.Model(t, 11, "x", node, "")
		m.Graph.Node[0].Attribute[0].RefAttrName = proto.String("p")
		s := newRaiser(m, 13, freshNames()).scope(m.Graph, nil)
		if elem, rank := s.elemType("y"), s.rank("y"); elem != unknown || rank != unknownRank {
			t.Errorf("%s: element type %v, rank %d", node, elem, rank)
		}
	}
}

// A search through more nodes than maxDepth gives up.
func TestDeepGraph(t *testing.T) {
	m := graphtext.Model(t, 11, "v0:float[2]", `x = Relu(v0)`, "")
	const length = maxDepth + 10
	for i := range length {
		m.Graph.Node = append(m.Graph.Node, newNode("Relu", []string{fmt.Sprint("v", i)}, []string{fmt.Sprint("v", i+1)}))
	}
	s := newRaiser(m, 13, freshNames()).scope(m.Graph, nil)
	if r := s.rank(fmt.Sprint("v", length)); r != unknownRank {
		t.Errorf("rank %d after %d nodes", r, length)
	}
	if r := s.rank("x"); r != 1 {
		t.Errorf("rank %d after one node", r)
	}
}

// Resize with scales at hand needs one node if they go one way.
func TestResizeOfStoredScales(t *testing.T) {
	for _, c := range []struct {
		name   string
		scales []float32
		input  bool // the scales are a graph input too
		want   string
	}{
		{"larger", []float32{1, 2}, false, `y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, "", [1.0 2.0])`},
		{"smaller", []float32{1, 0.5}, false, `y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="ceil">(x, "", [1.0 0.5])`},
		{"both", []float32{0.5, 2}, false, ""},
		{"a default", []float32{1, 2}, true, ""},
	} {
		for _, raw := range []bool{true, false} {
			inputs := "x"
			if c.input {
				inputs += " s:float[2]"
			}
			m := graphtext.Model(t, 10, inputs, `y = Resize(x, s)`, "y")
			tensor := floatTensor(c.scales, 2)
			if !raw {
				tensor.FloatData, tensor.RawData = c.scales, nil
			}
			tensor.Name = proto.String("s")
			m.Graph.Initializer = []*onnxpb.TensorProto{tensor}
			if err := Raise(m, 13, freshNames()); err != nil {
				t.Fatal(err)
			}
			tensor.RawData = floatTensor(c.scales).RawData // for printing
			got := graphtext.Print(m.Graph.Node, m.Graph.Initializer)
			if nodes := len(m.Graph.Node); c.want == "" && nodes != 4 || c.want != "" && got != c.want+"\n" {
				t.Errorf("%s, raw %v: got\n%s", c.name, raw, got)
			}
		}
	}
}
