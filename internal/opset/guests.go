package opset

import (
	"errors"
	"math"

	"onnxquant/internal/onnxpb"
)

// A guest is an operator that models use, and runtimes take, in the domain of
// ai.onnx at opsets that do not define it.
type guest struct {
	until   int64   // opset that retired, defined or redefined it
	adapter adapter // for that step; nil: it takes the node as it is
}

// anyOpset as the end of a guest says that no opset defines it: it is adapted
// by the first step that is taken.
const anyOpset = math.MaxInt64

// guests are the experimental operators of the first opsets, which opset 10
// took back or (two) had made real, and those that ONNX Runtime adds. What the
// former do is in the changelog up to onnx 1.4, and in the schemas of ONNX
// Runtime for both.
var guests = map[string]guest{
	"Affine":                       {10, affine},
	"Crop":                         {10, crop},
	"DynamicSlice":                 {10, dynamicSlice},
	"ImageScaler":                  {10, imageScaler},
	"LayerNormalization":           {17, nil},
	"MeanVarianceNormalization":    {9, varianceAxes},
	"ParametricSoftplus":           {10, parametricSoftplus},
	"Scale":                        {10, scale},
	"ScaledTanh":                   {10, scaledTanh},
	"SimplifiedLayerNormalization": {anyOpset, rootMeanSquare},
	"ThresholdedRelu":              {10, nil},
}

// definition returns the version of an operator in force at an opset: 0 if
// there is none, 1 for a guest.
func definition(op string, opset int64) int64 {
	if v := operators[op].at(opset); v != 0 || opset >= guests[op].until {
		return v
	}
	return 1
}

// adapterOf returns the adapter of an operator for the step to an opset, or nil.
func adapterOf(op string, version int64) adapter {
	if g := guests[op]; g.until == version || g.until == anyOpset {
		return g.adapter
	}
	return operators[op].adapters[version]
}

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

// scaled: alpha*op(beta*x), which had no defaults.
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

// imageScaler: scale*x + bias, one bias for each channel (axis 1 of 4).
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

// crop: border [left, top, right, bottom] comes off axes 3 and 2; scale
// [height, width], if given, is the size of what is kept from the left and top.
func crop(e *edit) error {
	border, size := e.take("border"), e.take("scale")
	if border.GetRefAttrName() != "" || size.GetRefAttrName() != "" {
		return errParameter("border or scale")
	}
	if len(border.GetInts()) != 4 {
		return errMissing("border of 4 numbers")
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

// dynamicSlice: what Slice became at opset 10.
func dynamicSlice(e *edit) error {
	e.become("Slice", e.node.Input...)
	return nil
}

// varianceAxes: the mean and variance of MeanVarianceNormalization are over
// the axes of an image, and that of channels too if across_channels. Without
// normalize_variance only the mean is taken off.
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

// times returns x times a float attribute, or x itself if that is absent.
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

// rootMeanSquare writes SimplifiedLayerNormalization, the RMSNormalization of
// ONNX Runtime, out in operators that every opset has. In that form, which
// exporters use, ONNX Runtime finds it again and runs it as one:
//
//	y = x / sqrt(mean(x²) + epsilon) * scale, computed in float32
func rootMeanSquare(e *edit) error {
	axis, err := e.intAttribute("axis", -1)
	if err != nil {
		return err
	}
	if axis >= 0 {
		axis -= int64(e.rank(e.input(0)))
	}
	switch {
	case present(e.node.Output) > 1:
		return errors.New("it puts out more than one value, and no standard operator does")
	case axis >= 0:
		return errors.New("the rank of its input is unknown")
	}
	epsilon := float32(1e-5)
	if a := e.attribute("epsilon"); a != nil {
		epsilon = a.GetF()
	}
	var axes []int64
	for ; axis < 0; axis++ {
		axes = append(axes, axis)
	}

	x, scale := e.input(0), e.input(1)
	wide := func(name string) string {
		if e.elemType(name) == onnxpb.TensorProto_FLOAT {
			return name
		}
		return e.produce("Cast", []string{name}, intAttribute("to", int64(onnxpb.TensorProto_FLOAT)))
	}
	v := wide(x)
	squares := e.produce("Pow", []string{v, e.float("two", 2)})
	var mean string
	if e.version < 18 {
		mean = e.produce("ReduceMean", []string{squares}, intsAttribute("axes", axes...))
	} else {
		mean = e.produce("ReduceMean", []string{squares, e.intVector("axes", axes...)})
	}
	root := e.produce("Sqrt", []string{e.produce("Add", []string{mean, e.float("epsilon", epsilon)})})
	normal := e.produce("Div", []string{v, root})
	product := e.produce("Mul", []string{normal, wide(scale)})
	if product, err = e.castLike(product, scale); err != nil {
		return err
	}
	e.node.Attribute = nil
	e.become("Identity", product)
	return nil
}
