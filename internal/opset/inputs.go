package opset

import (
	"errors"
	"fmt"
	"math"
)

// Operators with attributes that became inputs.

// requiredInputs turns required attributes into inputs, which it appends.
func requiredInputs(names ...string) adapter {
	return func(e *edit) error {
		for _, name := range names {
			a := e.take(name)
			if a == nil {
				return errMissing(name)
			}
			held, err := e.hold(a)
			if err != nil {
				return err
			}
			e.node.Input = append(e.node.Input, held)
		}
		return nil
	}
}

// optionalInput turns an optional list into input i. An empty list means the same as an
// absent one.
func optionalInput(name string, i int) adapter {
	return func(e *edit) error {
		a := e.take(name)
		if a == nil || a.GetRefAttrName() == "" && len(a.GetInts()) == 0 {
			return nil
		}
		held, err := e.hold(a)
		if err != nil {
			return err
		}
		e.setInput(i, held)
		return nil
	}
}

// sliceInputs turns starts, ends and the optional axes into inputs.
func sliceInputs(e *edit) error {
	if err := requiredInputs("starts", "ends")(e); err != nil {
		return err
	}
	return optionalInput("axes", 3)(e)
}

// topKInput turns k into an input, a vector of one element.
func topKInput(e *edit) error {
	if e.attribute("k") == nil {
		return errMissing("k")
	}
	k, err := e.intAttribute("k", 0)
	if err != nil {
		return err
	}
	e.take("k")
	e.setInput(1, e.intVector("k", k))
	return nil
}

// clipBounds turns min and max into inputs of the element type of x. The old defaults,
// the limits of float32, mean no bound.
func clipBounds(e *edit) error {
	for i, name := range []string{"min", "max"} {
		a := e.take(name)
		if a == nil || a.GetRefAttrName() == "" && math.Abs(float64(a.GetF())) == math.MaxFloat32 && (a.GetF() < 0) == (name == "min") {
			continue
		}
		bound, err := e.holdAs(a, e.input(0))
		if err != nil {
			return err
		}
		e.setInput(1+i, bound)
	}
	return nil
}

// padInputs turns pads into an input; in mode constant also a value that is not zero, of
// the element type of x.
func padInputs(e *edit) error {
	value := e.take("value")
	if err := requiredInputs("pads")(e); err != nil {
		return err
	}
	mode, err := e.stringAttribute("mode", "constant")
	if err != nil {
		mode = "constant" // the value is ignored otherwise
	}
	if mode != "constant" || value == nil || value.GetRefAttrName() == "" && value.GetF() == 0 {
		return nil
	}
	held, err := e.holdAs(value, e.input(0))
	if err != nil {
		return err
	}
	e.setInput(2, held)
	return nil
}

// dropMask removes the mask of Dropout, which became boolean. It refuses a mask that is
// read: outside of training its content was undefined before opset 12, and runtimes
// differ.
func dropMask(e *edit) error {
	if len(e.node.Output) < 2 {
		return nil
	}
	if e.used(e.node.Output[1]) {
		return errMask
	}
	e.node.Output = e.node.Output[:1]
	return nil
}

// dropoutRatio turns the ratio into an input. It refuses a mask as dropMask does.
func dropoutRatio(e *edit) error {
	if err := dropMask(e); err != nil {
		return err
	}
	a := e.take("ratio")
	if a == nil {
		return nil
	}
	held, err := e.hold(a)
	if err != nil {
		return err
	}
	e.setInput(1, held)
	return nil
}

// axisInput turns the axis of DFT into an input. Its default changed from 1 to -2.
func axisInput(e *edit) error {
	a := e.take("axis")
	if a == nil {
		a = intAttribute("axis", 1)
	}
	held, err := e.hold(a)
	if err != nil {
		return err
	}
	e.setInput(2, held)
	return nil
}

// countParts sets the number of parts of a Split without sizes.
func countParts(e *edit) error {
	if e.input(1) == "" {
		e.set(intAttribute("num_outputs", int64(len(e.node.Output))))
	}
	return nil
}

var errMask = errors.New("its mask is used, whose content outside of training was undefined before opset 12")

func errMissing(attribute string) error {
	return fmt.Errorf("its required attribute %s is missing", attribute)
}
