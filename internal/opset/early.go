package opset

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// The changes up to opset 7, except for broadcasting.

// without removes attributes that no longer mean anything.
func without(names ...string) adapter {
	return func(e *edit) error {
		for _, name := range names {
			e.take(name)
		}
		return nil
	}
}

// withoutConsumed removes a hint that an output may take the memory of an input.
var withoutConsumed = without("consumed_inputs")

// seluConstants sets alpha and gamma, whose defaults got more digits.
func seluConstants(e *edit) error {
	for _, a := range []*onnxpb.AttributeProto{floatAttribute("alpha", 1.6732), floatAttribute("gamma", 1.0507)} {
		if e.attribute(a.GetName()) == nil {
			e.set(a)
		}
	}
	return withoutConsumed(e)
}

// testMode removes is_test from BatchNormalization: from opset 7 on, a node with one output
// does not train. One output meant that before too, whatever is_test says; its default, 0,
// is wrong in many models.
func testMode(e *edit) error {
	test, err := e.intAttribute("is_test", 0)
	if err != nil {
		return err
	}
	e.take("is_test")
	if test == 0 {
		return nil
	}
	for _, name := range e.node.Output[1:] {
		if e.used(name) {
			return errors.New("its outputs beyond the first have no content with is_test, but one is used")
		}
	}
	e.node.Output = e.node.Output[:1]
	return nil
}

// castToNumber replaces the name of a type by its number, as opset 6 demands. Some models
// have the name at later opsets.
func castToNumber(e *edit) error {
	to := e.attribute("to")
	switch {
	case to.GetType() != onnxpb.AttributeProto_STRING:
		return nil
	case to.GetRefAttrName() != "":
		return errParameter("to")
	}
	t := castType(to)
	if t == unknown {
		return fmt.Errorf("its attribute to, %s, names no type", quote(string(to.GetS())))
	}
	e.set(intAttribute("to", int64(t)))
	return nil
}

// castType returns the type that the attribute to of a Cast names, in words before opset 6.
func castType(to *onnxpb.AttributeProto) onnxpb.TensorProto_DataType {
	if to.GetType() == onnxpb.AttributeProto_STRING {
		return onnxpb.TensorProto_DataType(onnxpb.TensorProto_DataType_value[strings.ToUpper(string(to.GetS()))])
	}
	return onnxpb.TensorProto_DataType(to.GetI())
}

// concatAxis sets the axis, which had a default.
func concatAxis(e *edit) error {
	if e.attribute("axis") == nil {
		e.set(intAttribute("axis", 1))
	}
	return nil
}

// forwardSpelled mends the direction of GRU, which the first definition misspelled.
func forwardSpelled(e *edit) error {
	if a := e.attribute("direction"); a != nil && string(a.GetS()) == "foward" {
		e.set(stringAttribute("direction", "forward"))
	}
	return nil
}

// activations by their names in lower case, which early exporters wrote.
var activations = func() map[string]string {
	names := map[string]string{}
	for _, name := range strings.Fields("Affine Elu HardSigmoid LeakyRelu Relu ScaledTanh Sigmoid Softplus Softsign Tanh ThresholdedRelu") {
		names[strings.ToLower(name)] = name
	}
	return names
}()

// recurrent adapts GRU, LSTM and RNN. Without output_sequence, the sequence is an output if it
// has a name.
func recurrent(e *edit) error {
	e.take("output_sequence")
	a := e.attribute("activations")
	if a == nil || a.GetRefAttrName() != "" {
		return nil
	}
	spelled := &onnxpb.AttributeProto{Name: a.Name, Type: a.Type}
	for _, name := range a.Strings {
		if n := activations[string(name)]; n != "" {
			name = []byte(n)
		}
		spelled.Strings = append(spelled.Strings, name)
	}
	e.set(spelled)
	return nil
}

// wholePower turns the power of a pooling, p, into an integer.
func wholePower(e *edit) error {
	p, err := e.floatAttribute("p", 2)
	if err != nil {
		return err
	}
	if p != float32(math.Trunc(float64(p))) || p < 1 || p > math.MaxInt16 {
		return fmt.Errorf("its power %v is no positive integer", p)
	}
	e.set(intAttribute("p", int64(p)))
	return nil
}

// lpPoolKernel is wholePower for LpPool, whose kernel_shape became required.
func lpPoolKernel(e *edit) error {
	if e.attribute("kernel_shape") == nil {
		return errMissing("kernel_shape")
	}
	return wholePower(e)
}

// padsRenamed renames paddings to pads.
func padsRenamed(e *edit) error {
	a := e.take("paddings")
	if a == nil {
		return errMissing("paddings")
	}
	e.set(&onnxpb.AttributeProto{Name: proto.String("pads"), Type: a.Type, Ints: a.Ints, RefAttrName: a.RefAttrName})
	return nil
}

// reshapeInput turns the shape into an input.
func reshapeInput(e *edit) error {
	if err := withoutConsumed(e); err != nil {
		return err
	}
	return requiredInputs("shape")(e)
}

// splitSizes adapts Split, which lost the input of its sizes until opset 13. Without an axis
// its meaning was open.
func splitSizes(e *edit) error {
	if e.attribute("axis") == nil {
		return errMissing("axis")
	}
	sizes := e.input(1)
	if sizes == "" {
		e.node.Input = e.node.Input[:min(1, len(e.node.Input))]
		return nil
	}
	if e.model.to < 13 {
		return errors.New("its sizes are an input, which exists again only from opset 13 on")
	}
	e.take("split")
	e.setInput(1, e.toInt64(sizes))
	return nil
}

// tileRepeats turns the number of tiles along one axis into a list of repeats for all axes:
//
//	1 + (axis == [0, 1, …]) * (tiles - 1)
func tileRepeats(e *edit) error {
	rank := e.rank(e.input(0))
	known := rank != unknownRank && rank <= maxRank
	switch {
	case e.input(1) == "" || e.input(2) == "":
		return errors.New("its input tiles or axis is missing")
	case !known && e.model.to < 9:
		return errors.New("the rank of its input is unknown, and NonZero exists only from opset 9 on")
	}
	one := e.intVector("one", 1)
	var axes string
	if known {
		list := make([]int64, rank)
		for i := range list {
			list[i] = int64(i)
		}
		axes = e.intVector("axes", list...)
	} else {
		axes = e.count(e.computedRank(e.input(0)))
	}
	flat := func(name string) string {
		return e.produce("Reshape", []string{e.toInt64(name), one})
	}
	chosen := e.toInt64(e.produce("Equal", []string{axes, flat(e.input(2))}))
	more := e.produce("Sub", []string{flat(e.input(1)), one})
	repeats := e.produce("Add", []string{e.produce("Mul", []string{chosen, more}), one})
	e.node.Input = []string{e.input(0), repeats}
	return nil
}

// upsampleScales turns the scales of the height and the width into a list for all four axes.
func upsampleScales(e *edit) error {
	scales := []float32{1, 1}
	for _, name := range []string{"height_scale", "width_scale"} {
		if e.attribute(name) == nil {
			return errMissing(name)
		}
		v, err := e.floatAttribute(name, 1)
		if err != nil {
			return err
		}
		e.take(name)
		scales = append(scales, v)
	}
	e.set(&onnxpb.AttributeProto{Name: proto.String("scales"), Type: onnxpb.AttributeProto_FLOATS.Enum(), Floats: scales})
	mode, err := e.stringAttribute("mode", "nearest")
	if err != nil {
		return err
	}
	if mode == "bilinear" {
		e.set(stringAttribute("mode", "linear"))
	}
	return nil
}

// toInt64 casts a value to int64.
func (e *edit) toInt64(name string) string {
	return e.produce("Cast", []string{name}, intAttribute("to", int64(onnxpb.TensorProto_INT64)))
}
