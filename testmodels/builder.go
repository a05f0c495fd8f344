package testmodels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// builder collects a graph. Values are float32 until withType says otherwise.
type builder struct {
	rng   *rand.Rand
	graph *onnxpb.GraphProto
}

func newBuilder(seed uint64, name string) *builder {
	return &builder{rng: newRand(seed), graph: &onnxpb.GraphProto{Name: &name}}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// bell turns 64 random bits into a number with a nearly Gaussian distribution around
// zero: the sum of four uniform 16-bit numbers. It uses integers and rounds once, so
// every machine gets the same bits.
func bell(bits uint64, sigma float32) float32 {
	const deviation = 37837 // standard deviation of the sum
	sum := bits&0xffff + bits>>16&0xffff + bits>>32&0xffff + bits>>48
	return float32(int64(sum)-2*0xffff) * (sigma / deviation)
}

// fanInSigma returns the standard deviation of weights that gives the output of a layer
// the variance of its input of k elements.
func fanInSigma(k int) float32 { return float32(1 / math.Sqrt(float64(k))) }

// weight adds an initializer of random values for a sum over k inputs.
func (b *builder) weight(name string, k int, dims ...int64) {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	raw := make([]byte, 0, 4*n)
	for range n {
		raw = appendFloat(raw, bell(b.rng.Uint64(), fanInSigma(k)))
	}
	b.graph.Initializer = append(b.graph.Initializer, &onnxpb.TensorProto{
		Name: &name, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Dims: dims, RawData: raw,
	})
}

// node adds a node with one output. Its name comes from the operator and the output.
func (b *builder) node(op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	b.graph.Node = append(b.graph.Node, &onnxpb.NodeProto{
		Name: proto.String(op + "_" + output), OpType: &op, Input: inputs, Output: []string{output}, Attribute: attrs,
	})
}

// input and output declare inputs and outputs of the graph. A dim is an int or the name
// of a symbolic dimension.
func (b *builder) input(name string, dtype onnxpb.TensorProto_DataType, dims ...any) {
	b.graph.Input = append(b.graph.Input, valueInfo(name, dtype, dims))
}

func (b *builder) output(name string, dtype onnxpb.TensorProto_DataType, dims ...any) {
	b.graph.Output = append(b.graph.Output, valueInfo(name, dtype, dims))
}

func (b *builder) model(opset, ir int64) *Model {
	return &Model{Proto: &onnxpb.ModelProto{
		IrVersion:    &ir,
		ProducerName: proto.String("onnxquant/testmodels"),
		OpsetImport:  []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: &opset}},
		Graph:        b.graph,
	}}
}

func valueInfo(name string, dtype onnxpb.TensorProto_DataType, dims []any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(dtype)), Shape: shape},
	}}}
}

func intAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}

func intsAttr(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
}

func floatAttr(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}

func graphAttr(name string, g *onnxpb.GraphProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: g}
}

func appendFloat(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}
