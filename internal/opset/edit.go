package opset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/x448/float16"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// An edit rewrites one node.
type edit struct {
	*scope
	version       int64               // opset of the step
	node          *onnxpb.NodeProto   // a copy, free to change
	before, after []*onnxpb.NodeProto // new nodes before and after it
}

// input returns the name of an input, "" if it is absent.
func (e *edit) input(i int) string {
	if i < len(e.node.Input) {
		return e.node.Input[i]
	}
	return ""
}

// setInput sets an input, and removes absent inputs from the end.
func (e *edit) setInput(i int, name string) {
	for len(e.node.Input) <= i {
		e.node.Input = append(e.node.Input, "")
	}
	e.node.Input[i] = name
	for n := len(e.node.Input); n > 0 && e.node.Input[n-1] == ""; n-- {
		e.node.Input = e.node.Input[:n-1]
	}
}

// become replaces the operator and inputs of the node.
func (e *edit) become(op string, inputs ...string) {
	e.node.OpType, e.node.Input = &op, inputs
}

// attribute returns the node's attribute of that name, or nil.
func (e *edit) attribute(name string) *onnxpb.AttributeProto {
	return attribute(e.node, name)
}

// take removes and returns the node's attribute of that name, or nil.
func (e *edit) take(name string) *onnxpb.AttributeProto {
	a := e.attribute(name)
	e.node.Attribute = slices.DeleteFunc(e.node.Attribute, func(b *onnxpb.AttributeProto) bool { return b == a })
	return a
}

// set replaces or adds an attribute.
func (e *edit) set(a *onnxpb.AttributeProto) {
	e.take(a.GetName())
	e.node.Attribute = append(e.node.Attribute, a)
}

// intAttribute returns the value of an attribute or its default.
func (e *edit) intAttribute(name string, unset int64) (int64, error) {
	a, err := e.value(name, onnxpb.AttributeProto_INT)
	if a == nil {
		return unset, err
	}
	return a.GetI(), nil
}

// floatAttribute returns the value of an attribute or its default.
func (e *edit) floatAttribute(name string, unset float32) (float32, error) {
	a, err := e.value(name, onnxpb.AttributeProto_FLOAT)
	if a == nil {
		return unset, err
	}
	return a.GetF(), nil
}

// stringAttribute returns the value of an attribute or its default.
func (e *edit) stringAttribute(name, unset string) (string, error) {
	a, err := e.value(name, onnxpb.AttributeProto_STRING)
	if a == nil {
		return unset, err
	}
	return string(a.GetS()), nil
}

// value returns an attribute of the given type, or nil if it is absent. A parameter of a
// function is an error.
func (e *edit) value(name string, t onnxpb.AttributeProto_AttributeType) (*onnxpb.AttributeProto, error) {
	a := e.attribute(name)
	switch {
	case a == nil:
		return nil, nil
	case a.GetRefAttrName() != "":
		return nil, errParameter(name)
	case a.GetType() != t:
		return nil, errType(a, t)
	}
	return a, nil
}

// errParameter says that an adapter needs the value of an attribute that only the caller of the
// function sets.
func errParameter(name string) error {
	return fmt.Errorf("its attribute %s, which decides how to rewrite it, is a parameter of a function", name)
}

// errType says that an attribute has the wrong type.
func errType(a *onnxpb.AttributeProto, want onnxpb.AttributeProto_AttributeType) error {
	return fmt.Errorf("its attribute %s is of type %v, want %v", a.GetName(), a.GetType(), want)
}

// produce adds a node before the edited one and returns the name of its output.
func (e *edit) produce(op string, inputs []string, attributes ...*onnxpb.AttributeProto) string {
	n := e.newNode(op, inputs, attributes)
	e.before = append(e.before, n)
	return n.Output[0]
}

// finish adds a node after the edited one. It reads the first output of the edited node
// and takes over its name.
func (e *edit) finish(op string, more []string, attributes ...*onnxpb.AttributeProto) {
	name := e.node.Output[0]
	e.node.Output[0] = e.model.fresh(name)
	n := e.newNode(op, append([]string{e.node.Output[0]}, more...), attributes)
	n.Output[0] = name
	e.after = append(e.after, n)
}

func (e *edit) newNode(op string, inputs []string, attributes []*onnxpb.AttributeProto) *onnxpb.NodeProto {
	output := e.model.fresh(e.node.Output[0] + "_" + op)
	n := newNode(op, inputs, []string{output}, attributes...)
	e.owned[n] = true
	return n
}

func newNode(op string, inputs, outputs []string, attributes ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: &op, Name: proto.String(outputs[0]), Input: inputs, Output: outputs, Attribute: attributes}
}

// constant returns the name of a constant with the content of t. If the scope has none, it adds one:
// an initializer to a graph, a Constant node to a function.
func (e *edit) constant(hint string, t *onnxpb.TensorProto) string {
	key := fmt.Sprint(t.GetDataType(), t.Dims) + string(t.RawData)
	if name, ok := e.constants[key]; ok {
		return name
	}
	name := e.model.fresh(hint)
	e.constants[key] = name
	if e.graph != nil {
		t.Name = &name
		e.initializers = append(e.initializers, t)
	} else {
		e.leading = append(e.leading, newNode("Constant", nil, []string{name}, tensorAttribute("value", t)))
	}
	return name
}

// intVector and int return the name of a constant int64 vector and scalar.
func (e *edit) intVector(hint string, values ...int64) string {
	return e.constant(hint, int64Tensor(values, int64(len(values))))
}

func (e *edit) int(hint string, value int64) string {
	return e.constant(hint, int64Tensor([]int64{value}))
}

// floatVector and float return the name of a constant float32 vector and scalar.
func (e *edit) floatVector(hint string, values ...float32) string {
	return e.constant(hint, floatTensor(values, int64(len(values))))
}

func (e *edit) float(hint string, value float32) string {
	return e.constant(hint, floatTensor([]float32{value}))
}

// hold turns an attribute, of ints, an int, floats or a float, into a value and returns
// its name.
func (e *edit) hold(a *onnxpb.AttributeProto) (string, error) {
	hint := a.GetName()
	if a.GetRefAttrName() == "" {
		switch a.GetType() {
		case onnxpb.AttributeProto_INTS:
			return e.intVector(hint, a.Ints...), nil
		case onnxpb.AttributeProto_INT:
			return e.int(hint, a.GetI()), nil
		case onnxpb.AttributeProto_FLOATS:
			return e.floatVector(hint, a.Floats...), nil
		case onnxpb.AttributeProto_FLOAT:
			return e.float(hint, a.GetF()), nil
		}
		return "", fmt.Errorf("its attribute %s is not a number or a list of numbers", hint)
	}
	// From opset 12 on, Constant can take a parameter of the function.
	value, ok := map[onnxpb.AttributeProto_AttributeType]string{
		onnxpb.AttributeProto_INTS:   "value_ints",
		onnxpb.AttributeProto_INT:    "value_int",
		onnxpb.AttributeProto_FLOATS: "value_floats",
		onnxpb.AttributeProto_FLOAT:  "value_float",
	}[a.GetType()]
	if !ok || e.model.to < 12 {
		return "", errParameter(hint)
	}
	return e.produce("Constant", nil, &onnxpb.AttributeProto{Name: &value, Type: a.Type, RefAttrName: a.RefAttrName}), nil
}

// holdAs is hold for a float, converted to the element type of like.
func (e *edit) holdAs(a *onnxpb.AttributeProto, like string) (string, error) {
	if a.GetType() != onnxpb.AttributeProto_FLOAT {
		return "", errType(a, onnxpb.AttributeProto_FLOAT)
	}
	if t := e.elemType(like); a.GetRefAttrName() == "" && t != unknown {
		return e.constant(a.GetName(), scalar(a.GetF(), t)), nil
	}
	held, err := e.hold(a)
	if err != nil {
		return "", err
	}
	return e.castLike(held, like)
}

// castLike casts a float32 value to the element type of like.
func (e *edit) castLike(x, like string) (string, error) {
	switch t := e.elemType(like); {
	case t == onnxpb.TensorProto_FLOAT:
		return x, nil
	case t != unknown:
		return e.produce("Cast", []string{x}, intAttribute("to", int64(t))), nil
	case e.model.to < 15:
		return "", errors.New("the element type of its input is unknown, and CastLike exists only from opset 15 on")
	}
	return e.produce("CastLike", []string{x, like}), nil
}

// scalar returns a tensor of rank 0 of type float32, float16 or double, the float types of operators
// that took numbers as float attributes.
func scalar(v float32, t onnxpb.TensorProto_DataType) *onnxpb.TensorProto {
	var raw []byte
	switch t {
	case onnxpb.TensorProto_FLOAT16:
		raw = binary.LittleEndian.AppendUint16(nil, float16.Fromfloat32(v).Bits())
	case onnxpb.TensorProto_DOUBLE:
		raw = binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)))
	default:
		raw = binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
		t = onnxpb.TensorProto_FLOAT
	}
	return &onnxpb.TensorProto{DataType: proto.Int32(int32(t)), RawData: raw}
}

func int64Tensor(values []int64, dims ...int64) *onnxpb.TensorProto {
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return &onnxpb.TensorProto{DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: dims, RawData: raw}
}

func floatTensor(values []float32, dims ...int64) *onnxpb.TensorProto {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return &onnxpb.TensorProto{DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Dims: dims, RawData: raw}
}

func attribute(n *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	for _, a := range n.GetAttribute() {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// literal returns an attribute, or nil if it is absent or a parameter of a function.
func literal(n *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	a := attribute(n, name)
	if a.GetRefAttrName() != "" {
		return nil
	}
	return a
}

func intAttribute(name string, value int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &value}
}

func floatAttribute(name string, value float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &value}
}

func intsAttribute(name string, values ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: values}
}

func stringAttribute(name, value string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(value)}
}

func tensorAttribute(name string, value *onnxpb.TensorProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_TENSOR.Enum(), T: value}
}

func graphAttribute(name string, value *onnxpb.GraphProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: value}
}
