package form

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/write"
)

// Builder collects the tensors and nodes that decode weights in one graph.
type Builder struct {
	Tensors []*onnxpb.TensorProto
	Nodes   []*onnxpb.NodeProto

	names     *graph.Names
	constants map[string]*onnxpb.TensorProto // by type, shape and content
	asked     []string                       // keys of constants, in the order of calls of Constant
}

// NewBuilder returns a Builder whose new names come from names.
func NewBuilder(names *graph.Names) *Builder {
	return &Builder{names: names}
}

// Fresh returns a new name that resembles hint.
func (b *Builder) Fresh(hint string) string { return b.names.Fresh(hint) }

// Tensor adds an initializer whose content is written later.
func (b *Builder) Tensor(name string, typ dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: new(b.names.Fresh(name)), DataType: new(int32(typ)), Dims: shape}
	write.Reserve(t)
	b.Tensors = append(b.Tensors, t)
	return t
}

// Constant returns the name of a small initializer. Equal constants are added once.
func (b *Builder) Constant(name string, typ dtype.DType, shape []int64, raw []byte) string {
	key := fmt.Sprint(typ, shape) + string(raw)
	b.asked = append(b.asked, key)
	if have, ok := b.constants[key]; ok {
		return have.GetName()
	}
	t := b.Tensor(name, typ, shape)
	t.Payload, t.RawData = nil, raw
	if b.constants == nil {
		b.constants = map[string]*onnxpb.TensorProto{}
	}
	b.constants[key] = t
	return t.GetName()
}

// Shape returns the name of a constant whose content is a shape.
func (b *Builder) Shape(prefix string, dims []int64) string {
	var raw []byte
	for _, n := range dims {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	return b.Constant(prefix+"_shape", dtype.Int64, []int64{int64(len(dims))}, raw)
}

// Scalar returns the name of a scalar constant, float16 or float32.
func (b *Builder) Scalar(name string, typ dtype.DType, v float32) string {
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
	if typ == dtype.Float16 {
		raw = binary.LittleEndian.AppendUint16(nil, float16.Fromfloat32(v).Bits())
	}
	return b.Constant(name, typ, []int64{}, raw)
}

// Node adds a node with one output. Its name begins with prefix.
func (b *Builder) Node(prefix, op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	b.Nodes = append(b.Nodes, b.NewNode(prefix, op, output, inputs, attrs...))
}

// NewNode makes a node without adding it.
func (b *Builder) NewNode(prefix, op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{
		OpType:    &op,
		Name:      new(b.names.Fresh(prefix + "_" + op)),
		Input:     inputs,
		Output:    []string{output},
		Attribute: attrs,
	}
	return n
}

// Value adds a node and returns the new name of its output.
func (b *Builder) Value(prefix, op string, inputs []string, attrs ...*onnxpb.AttributeProto) string {
	output := b.names.Fresh(prefix + "_" + op + "_Output")
	b.Node(prefix, op, output, inputs, attrs...)
	return output
}

// ConstantNodes returns the tensors as Constant nodes, for functions, which have no initializers.
func (b *Builder) ConstantNodes() (nodes []*onnxpb.NodeProto) {
	for _, t := range b.Tensors {
		n := &onnxpb.NodeProto{OpType: new("Constant"), Output: []string{t.GetName()}, Attribute: []*onnxpb.AttributeProto{
			{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t},
		}}
		nodes = append(nodes, n)
	}
	return nodes
}

// IntAttr makes an attribute of an integer.
func IntAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}
