package intops_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// What codes cut off stays cut off, where there may be something.
func TestRangesOfCodes(t *testing.T) {
	node := modeltest.Node
	cases := []struct {
		name        string
		opset       int64
		source      *onnxpb.NodeProto // makes v
		scale, zero string            // of the codes of v
		want        string
	}{
		{"uint8 without negative numbers", 17, node("Neg", "v", "x"), "s", "u0", "Clip 0 1.9921875"},
		{"int8 without negative numbers", 17, node("Neg", "v", "x"), "s", "least", "Clip 0 1.9921875"},
		{"uint8 without a zero point", 17, node("Neg", "v", "x"), "s", "_", "Clip 0 1.9921875"},
		{"uint16", 17, node("Neg", "v", "x"), "s", "u16", "Clip -8 503.9922"},
		{"int8", 17, node("Neg", "v", "x"), "s", "i0", "Clip -1 0.9921875"},
		{"before opset 11", 10, node("Neg", "v", "x"), "s", "u0", "Clip 0 1.9921875"},
		{"unknown scale", 17, node("Neg", "v", "x"), "given", "u0", "Relu"},
		{"unknown scale, negative numbers", 17, node("Neg", "v", "x"), "given", "i0", ""},
		{"a Sigmoid is inside", 17, node("Sigmoid", "v", "x"), "s", "u0", ""},
		{"a Tanh ends within a code", 17, node("Tanh", "v", "x"), "s", "i0", ""},
		{"a Clip is inside", 17, node("Clip", "v", "x zero one"), "s", "u0", ""},
		{"a Clip is outside", 17, node("Clip", "v", "x minus one"), "s", "u0", "Clip 0 1.9921875"},
		{"a Relu, moved", 17, node("Flatten", "v", "r"), "given", "u0", ""},
		{"a weight is inside", 17, node("Flatten", "v", "wf"), "s", "i0", ""},
		{"other codes with the same range", 17, node("DequantizeLinear", "v", "q0 s i0"), "s", "i0", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := modeltest.Model(modeltest.Tensors{
				one("s", dtype.Float32, 1./128), one("sw", dtype.Float32, 0.1), one("zero", dtype.Float32, 0), one("one", dtype.Float32, 1),
				one("minus", dtype.Float32, -1), one("u0", dtype.Uint8, 0), one("least", dtype.Int8, -128), one("i0", dtype.Int8, 0),
				one("u16", dtype.Uint16, 1024), modeltest.Zeros("w", dtype.Int8, 32, 32), modeltest.Floats("wf", 32, 32),
			}, modeltest.Nodes{
				node("Relu", "r", "x"), node("Abs", "given", "x"), node("QuantizeLinear", "q0", "x s i0"), c.source,
				node("QuantizeLinear", "q", fmt.Sprintf("v %s %s", c.scale, c.zero)),
				node(graph.Contrib+".MatMulIntegerToFloat", "y", fmt.Sprintf("q w %s sw %s i0", c.scale, c.zero)),
			})
			m.Proto.OpsetImport[0].Version = &c.opset
			f, err := intops.Float(modeltest.Open(t, modeltest.Write(t, m)).Graph())
			if err != nil {
				t.Fatal(err)
			}
			product := f.Graph.Scope(f.Graph.File.Proto.Graph).Values["y"].Node
			if product.GetOpType() != "MatMul" {
				t.Fatalf("%s is left", product.GetOpType())
			}
			limit := ""
			if n := f.Graph.Source(product, 0).Node; n != nil && n.Output[0] != "v" && n.Output[0] != "r" {
				limit = strings.Join(append([]string{n.GetOpType()}, bounds(t, f.Graph, n)...), " ")
			}
			if limit != c.want {
				t.Errorf("%q, want %q", limit, c.want)
			}
		})
	}
}

// Codes that are decoded without a zero point have the type that they were made with.
func TestTypeOfCodesWithoutZero(t *testing.T) {
	node := modeltest.Node
	for _, c := range []struct {
		name  string
		nodes modeltest.Nodes // make codes q of x
		want  string
	}{
		{"int8", modeltest.Nodes{node("QuantizeLinear", "q", "x s i0")}, "Clip -1 0.9921875"},
		{"uint8", modeltest.Nodes{node("QuantizeLinear", "q", "x s")}, "Clip 0 1.9921875"},
		{"int8 by an attribute", modeltest.Nodes{node("QuantizeLinear", "q", "x s", modeltest.IntAttr("output_dtype", int64(dtype.Int8)))}, "Clip -1 0.9921875"},
		{"int8 of a sum", modeltest.Nodes{node("QuantizeLinear", "p", "x s i0"), node(graph.Contrib+".QLinearAdd", "q", "p s i0 p s _ s _")}, "Clip -1 0.9921875"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modeltest.Model(modeltest.Tensors{one("s", dtype.Float32, 1./128), one("i0", dtype.Int8, 0)},
				append(c.nodes, node("Flatten", "moved", "q"), node("DequantizeLinear", "y", "moved s")))
			m.Proto.OpsetImport[0].Version = new(int64(21))
			f, err := intops.Float(modeltest.Open(t, modeltest.Write(t, m)).Graph())
			if err != nil {
				t.Fatal(err)
			}
			moved := f.Graph.Scope(f.Graph.File.Proto.Graph).Values["y"].Node
			if moved.GetOpType() != "Flatten" {
				t.Fatalf("%s is left", moved.GetOpType())
			}
			limit := f.Graph.Source(moved, 0).Node
			if got := strings.Join(append([]string{limit.GetOpType()}, bounds(t, f.Graph, limit)...), " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A QGemm whose output is omitted is left alone.
func TestOmittedOutput(t *testing.T) {
	gemm := modeltest.Node(graph.Contrib+".QGemm", "", "q s i0 w s i0")
	m := modeltest.Model(modeltest.Tensors{one("s", dtype.Float32, 1), one("i0", dtype.Int8, 0), modeltest.Zeros("w", dtype.Int8, 32, 32)},
		modeltest.Nodes{modeltest.Node("QuantizeLinear", "q", "x s i0"), gemm, modeltest.Node("Relu", "y", "x")})
	if _, err := intops.Float(modeltest.Open(t, modeltest.Write(t, m)).Graph()); err != nil {
		t.Error(err)
	}
}

// one makes a tensor with one element.
func one(name string, typ dtype.DType, x float64) *onnxpb.TensorProto {
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
	if typ.Integer() {
		raw = binary.LittleEndian.AppendUint64(nil, uint64(int64(x)))[:typ.Bytes(1)]
	}
	return &onnxpb.TensorProto{Name: &name, DataType: new(int32(typ)), RawData: raw}
}

// bounds returns those of a Clip.
func bounds(t *testing.T, x *graph.Graph, n *onnxpb.NodeProto) (list []string) {
	for _, a := range n.Attribute {
		list = append(list, fmt.Sprint(a.GetF()))
	}
	for i := 1; i < len(n.Input); i++ {
		p, err := x.File.Payload(x.Source(n, i).Tensor)
		if err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, 4)
		if _, err := p.ReadAt(raw, 0); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	return list
}
