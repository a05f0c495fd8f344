package opset

import (
	"errors"
	"math"

	"onnxquant/internal/onnxpb"
)

// The experimental operators of the first opsets. Comments have their definitions.

// affine: alpha*x + beta.
func affine(e *edit) error {
	x, err := e.times(e.input(0), "alpha")
	if err != nil {
		return err
	}
	if e.attribute("beta") == nil {
		e.become("Identity", x)
		return nil
	}
	beta, err := e.factor("beta")
	if err != nil {
		return err
	}
	e.become("Add", x, beta)
	return nil
}

// scale: scale*x.
func scale(e *edit) error {
	x, err := e.times(e.input(0), "scale")
	if err != nil {
		return err
	}
	e.become("Identity", x)
	return nil
}

// scaledTanh: alpha*tanh(beta*x).
func scaledTanh(e *edit) error { return e.scaled("Tanh") }

// parametricSoftplus: alpha*ln(exp(beta*x) + 1).
func parametricSoftplus(e *edit) error { return e.scaled("Softplus") }

// scaled: alpha*op(beta*x). alpha and beta have no defaults.
func (e *edit) scaled(op string) error {
	beta, err := e.factor("beta")
	if err != nil {
		return err
	}
	alpha, err := e.factor("alpha")
	if err != nil {
		return err
	}
	x := e.produce("Mul", []string{e.input(0), beta})
	e.become("Mul", e.produce(op, []string{x}), alpha)
	return nil
}

// imageScaler: scale*x + bias, with one bias per channel (axis 1 of 4).
func imageScaler(e *edit) error {
	x, err := e.times(e.input(0), "scale")
	if err != nil {
		return err
	}
	bias := e.take("bias")
	if bias.GetRefAttrName() != "" {
		return errParameter("bias")
	}
	values := e.constant("bias", floatTensor(bias.GetFloats(), int64(len(bias.GetFloats())), 1, 1))
	if values, err = e.castLike(values, e.input(0)); err != nil {
		return err
	}
	e.become("Add", x, values)
	return nil
}

// crop: removes border [left, top, right, bottom] from axes 3 and 2. With scale [height,
// width], the result has that size, and right and bottom are ignored.
func crop(e *edit) error {
	border, size := e.take("border"), e.take("scale")
	if border.GetRefAttrName() != "" || size.GetRefAttrName() != "" {
		return errParameter("border or scale")
	}
	if len(border.GetInts()) != 4 {
		return errMissing("border (4 numbers)")
	}
	left, top, right, bottom := border.Ints[0], border.Ints[1], border.Ints[2], border.Ints[3]
	ends := []int64{fromEnd(bottom), fromEnd(right)}
	if s := size.GetInts(); len(s) == 2 {
		ends = []int64{top + s[0], left + s[1]}
	}
	e.become("Slice", e.input(0), e.intVector("starts", top, left), e.intVector("ends", ends...), e.intVector("axes", 2, 3))
	return nil
}

// fromEnd returns the end of a slice that leaves out the last n elements.
func fromEnd(n int64) int64 {
	if n == 0 {
		return math.MaxInt64
	}
	return -n
}

// dynamicSlice: the same as Slice of opset 10.
func dynamicSlice(e *edit) error {
	e.become("Slice", e.node.Input...)
	return nil
}

// constantFill adapts ConstantFill: value, cast to dtype, in a shape. The shape is that of the input,
// or listed by the input (input_as_shape), or in the attribute shape. extra_shape is appended.
func constantFill(e *edit) error {
	listed, err := e.intAttribute("input_as_shape", 0)
	if err != nil {
		return err
	}
	dtype, err := e.intAttribute("dtype", int64(onnxpb.TensorProto_FLOAT))
	if err != nil {
		return err
	}
	value, err := e.floatAttribute("value", 0)
	if err != nil {
		return err
	}
	var shape string
	switch x := e.input(0); {
	case len(e.node.Input) > 1:
		return errors.New("it has more than one input")
	case x == "" && e.attribute("shape") == nil:
		return errMissing("shape")
	case x == "":
		if shape, err = e.hold(e.attribute("shape")); err != nil {
			return err
		}
	case listed != 0:
		shape = e.toInt64(x)
	default:
		shape = e.produce("Shape", []string{x})
	}
	if extra := e.attribute("extra_shape"); extra != nil {
		more, err := e.hold(extra)
		if err != nil {
			return err
		}
		shape = e.produce("Concat", []string{shape, more}, intAttribute("axis", 0))
	}
	e.node.Attribute = []*onnxpb.AttributeProto{tensorAttribute("value", floatTensor([]float32{value}, 1))}
	e.become("ConstantOfShape", shape)
	if dtype != int64(onnxpb.TensorProto_FLOAT) {
		e.finish("Cast", nil, intAttribute("to", dtype))
	}
	return nil
}

// varianceAxes adapts MeanVarianceNormalization over the spatial axes of an image, with
// across_channels also over the channels. Without normalize_variance it only subtracts the mean.
func varianceAxes(e *edit) error {
	across, err := e.intAttribute("across_channels", 0)
	if err != nil {
		return err
	}
	variance, err := e.intAttribute("normalize_variance", 1)
	if err != nil {
		return err
	}
	axes := intsAttribute("axes", 0, 2, 3)
	if across != 0 {
		axes = intsAttribute("axes", 0, 1, 2, 3)
	}
	e.node.Attribute = nil
	if variance == 0 {
		x := e.input(0)
		e.become("Sub", x, e.produce("ReduceMean", []string{x}, axes))
		return nil
	}
	e.set(axes)
	return nil
}

// times multiplies x by a float attribute; it returns x if that is absent.
func (e *edit) times(x, name string) (string, error) {
	if e.attribute(name) == nil {
		return x, nil
	}
	f, err := e.factor(name)
	if err != nil {
		return "", err
	}
	return e.produce("Mul", []string{x, f}), nil
}

// factor turns a float attribute into a value of the input's element type.
func (e *edit) factor(name string) (string, error) {
	a := e.take(name)
	if a == nil {
		return "", errMissing(name)
	}
	return e.holdAs(a, e.input(0))
}
