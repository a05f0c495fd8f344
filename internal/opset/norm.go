package opset

import (
	"errors"
	"fmt"

	"onnxquant/internal/onnxpb"
)

// The normalizations.

// perChannel adapts BatchNormalization, which lost the attribute spatial at opset 9. With
// spatial=0 the statistics were per element. That is the same as statistics per channel
// after flattening all elements into channels.
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
		return errors.New("spatial=0 was removed, and there is no replacement in training")
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

// trainingMode sets training_mode for nodes with more than one output, which used to imply
// training. The outputs saved_mean and saved_var were removed.
func trainingMode(e *edit) error {
	if present(e.node.Output) <= 1 {
		e.node.Output = e.node.Output[:1]
		return nil
	}
	for i, name := range e.node.Output {
		switch {
		case i > 2 && e.used(name):
			return errors.New("its outputs saved_mean and saved_var were removed, but one is used")
		case name == "":
			e.node.Output[i] = e.model.fresh(e.node.Output[0] + "_statistics")
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

// instanceNormalization replaces GroupNormalization, whose scale and bias per group opset
// 21 changed to per channel. With one channel per group, InstanceNormalization computes
// the same:
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

// rootMeanSquare replaces SimplifiedLayerNormalization, the RMSNormalization of ONNX
// Runtime, by operators of every opset:
//
//	y = x / sqrt(mean(x²) + epsilon) * scale
//
// Exporters use this form, and ONNX Runtime fuses it again. It computes in float32, or in
// double if the result is double.
func rootMeanSquare(e *edit) error {
	if present(e.node.Output) > 1 {
		return errors.New("it has more than one output, and no standard operator has")
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
	} else { // ONNX Runtime 1.31 also fuses Pow, but then uses 1e-5 instead of a double epsilon
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

// axisFromEnd returns an axis of the first input, given by an attribute, counted from the
// end: -1 is the last.
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
