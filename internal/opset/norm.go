package opset

import (
	"errors"
	"fmt"

	"onnxquant/internal/onnxpb"
)

// The normalizations.

// perChannel adapts BatchNormalization to the loss of spatial. With spatial=0
// the statistics were of single elements: the same as statistics of channels
// once the elements are channels.
func perChannel(e *edit) error {
	spatial, err := e.intAttribute("spatial", 1)
	if err != nil {
		return err
	}
	e.take("spatial")
	if spatial != 0 {
		return nil
	}
	if present(e.node.Output) > 1 {
		return errors.New("spatial=0 was removed, and has no other form in training")
	}
	x := e.input(0)
	e.setInput(0, e.produce("Flatten", []string{x}, intAttribute("axis", 1)))
	flat := e.intVector("flat", -1)
	for i := 1; i < len(e.node.Input); i++ {
		e.setInput(i, e.produce("Reshape", []string{e.input(i), flat}))
	}
	e.reshapeLike(x)
	return nil
}

// trainingMode names what outputs besides the first used to imply: that the
// node is in training. The batch's own statistics are no longer put out.
func trainingMode(e *edit) error {
	if present(e.node.Output) <= 1 {
		e.node.Output = e.node.Output[:1]
		return nil
	}
	for i, name := range e.node.Output {
		switch {
		case i > 2 && e.used(name):
			return errors.New("it puts out saved_mean or saved_var, which were removed")
		case name == "":
			e.node.Output[i] = e.fresh(e.node.Output[0] + "_statistics")
		}
	}
	e.node.Output = e.node.Output[:min(3, len(e.node.Output))]
	e.set(intAttribute("training_mode", 1))
	return nil
}

// present counts the names that are not empty.
func present(names []string) int {
	n := 0
	for _, name := range names {
		if name != "" {
			n++
		}
	}
	return n
}

// instanceNormalization replaces GroupNormalization with a scale and a bias for
// each group, which opset 21 changed to one for each channel. A group as a
// channel of its own is what InstanceNormalization works on:
//
//	x ── Reshape(0, groups, -1) ── InstanceNormalization ── Reshape ── y
//	└───────────────────────────── Shape ──────────────────────┘
func instanceNormalization(e *edit) error {
	groups, err := e.intAttribute("num_groups", 0)
	if err != nil {
		return err
	}
	if groups <= 0 {
		return errMissing("num_groups")
	}
	e.take("num_groups")
	x := e.input(0)
	e.setInput(0, e.produce("Reshape", []string{x, e.intVector("groups", 0, groups, -1)}))
	e.become("InstanceNormalization", e.node.Input...)
	e.reshapeLike(x)
	return nil
}

// rootMeanSquare writes SimplifiedLayerNormalization, the RMSNormalization of
// ONNX Runtime, out in operators that every opset has. In that form, which
// exporters use, ONNX Runtime finds it again and runs it as one:
//
//	y = x / sqrt(mean(x²) + epsilon) * scale
//
// It computes in float32, or in double where the result is.
func rootMeanSquare(e *edit) error {
	if present(e.node.Output) > 1 {
		return errors.New("it puts out more than one value, and no standard operator does")
	}
	axis, err := e.axisFromEnd("axis", -1)
	if err != nil {
		return err
	}
	epsilon, err := e.floatAttribute("epsilon", 1e-5)
	if err != nil {
		return err
	}
	var axes []int64
	for ; axis < 0; axis++ {
		axes = append(axes, axis)
	}

	x, scale := e.input(0), e.input(1)
	result, within := e.elemType(scale), onnxpb.TensorProto_FLOAT
	if result == onnxpb.TensorProto_DOUBLE {
		within = result
	}
	wide := func(name string) string {
		if e.elemType(name) == within {
			return name
		}
		return e.produce("Cast", []string{name}, intAttribute("to", int64(within)))
	}
	v := wide(x)
	var squares string
	if within == onnxpb.TensorProto_FLOAT {
		squares = e.produce("Pow", []string{v, e.float("two", 2)})
	} else { // ONNX Runtime 1.31 finds Pow too, but takes 1e-5 for a double epsilon
		squares = e.produce("Mul", []string{v, v})
	}
	var mean string
	if e.version < 18 {
		mean = e.produce("ReduceMean", []string{squares}, intsAttribute("axes", axes...))
	} else {
		mean = e.produce("ReduceMean", []string{squares, e.intVector("axes", axes...)})
	}
	root := e.produce("Sqrt", []string{e.produce("Add", []string{mean, e.constant("epsilon", scalar(epsilon, within))})})
	normal := e.produce("Div", []string{v, root})
	product := e.produce("Mul", []string{normal, wide(scale)})
	if result != within {
		if product, err = e.castLike(product, scale); err != nil {
			return err
		}
	}
	e.node.Attribute = nil
	e.become("Identity", product)
	return nil
}

// axisFromEnd returns the axis of the first input that an attribute names,
// counted from the end: -1 is the last.
func (e *edit) axisFromEnd(name string, unset int64) (int64, error) {
	given, err := e.intAttribute(name, unset)
	if err != nil {
		return 0, err
	}
	axis, rank := given, int64(e.rank(e.input(0)))
	if given >= 0 {
		if rank == unknownRank {
			return 0, errors.New("the rank of its input is unknown")
		}
		axis -= rank
	}
	if axis >= 0 || axis < -maxRank || rank != unknownRank && axis < -rank {
		return 0, fmt.Errorf("its input has no %s %d", name, given)
	}
	return axis, nil
}
