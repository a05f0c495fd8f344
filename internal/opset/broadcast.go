package opset

import "errors"

// Broadcasting before opset 7, which could align the second operand with any axis of the
// first one. Since then dimensions are aligned from the last.

// broadcastAtAxis adapts operators of two operands. Without broadcast, both have one shape.
func broadcastAtAxis(e *edit) error {
	broadcast, err := e.intAttribute("broadcast", 0)
	if err != nil {
		return err
	}
	aligned := broadcast != 0 && e.attribute("axis") != nil
	axis, err := e.intAttribute("axis", 0)
	if err != nil {
		return err
	}
	e.take("broadcast")
	e.take("axis")
	if !aligned {
		return nil
	}
	return e.align(axis)
}

// slopePerChannel adapts PRelu: a slope of rank 1 had one element for each channel, or one.
func slopePerChannel(e *edit) error {
	switch slope := e.rank(e.input(1)); {
	case slope == unknownRank:
		return errors.New("the rank of its slope is unknown")
	case slope != 1 || e.rank(e.input(0)) == 1:
		return nil
	}
	return e.align(1)
}

// align appends dimensions of 1 to the second input, so that its first dimension meets the given axis
// of the first input.
func (e *edit) align(axis int64) error {
	if e.single(e.input(1)) {
		return nil
	}
	first, second := e.rank(e.input(0)), e.rank(e.input(1))
	if second != unknownRank && (first != unknownRank || axis < 0) {
		more := -axis - int64(second)
		if axis >= 0 {
			more += int64(first)
		}
		switch {
		case more == 0:
			return nil
		case more < 0 || more > maxRank:
			return errors.New("its second input reaches beyond the last axis of the first")
		}
		axes := make([]int64, more)
		for i := range axes {
			axes[i] = int64(second + i)
		}
		e.setInput(1, e.produce("Unsqueeze", []string{e.input(1)}, intsAttribute("axes", axes...)))
		return nil
	}
	return e.alignAnyRank(axis)
}

// alignAnyRank is align where the model runs:
//
//	Reshape(second, Concat(Shape(second), [1, 1, …]))
func (e *edit) alignAnyRank(axis int64) error {
	if e.model.to < 9 {
		return errors.New("the rank of an input is unknown, and ConstantOfShape exists only from opset 9 on")
	}
	shape := e.produce("Shape", []string{e.input(1)})
	more := e.intVector("more", -axis)
	if axis >= 0 {
		more = e.produce("Sub", []string{e.computedRank(e.input(0)), e.intVector("axis", axis)})
	}
	more = e.produce("Sub", []string{more, e.produce("Shape", []string{shape})})
	ones := e.produce("ConstantOfShape", []string{more}, tensorAttribute("value", int64Tensor([]int64{1}, 1)))
	e.setInput(1, e.produce("Reshape", []string{e.input(1), e.produce("Concat", []string{shape, ones}, intAttribute("axis", 0))}))
	return nil
}

// computedRank returns a vector with one element: the rank of a value. It is Shape(Shape(x)), because
// ONNX Runtime 1.31 miscomputes Size(Shape(x)) for a known shape: it returns the number of elements of
// x.
func (e *edit) computedRank(x string) string {
	return e.produce("Shape", []string{e.produce("Shape", []string{x})})
}
