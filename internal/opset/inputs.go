package opset

import (
	"errors"
	"fmt"
	"math"
)

// The operators that turned attributes into inputs.

// requiredInputs appends inputs that hold the attributes of the given names.
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

// optionalInput makes input i of a list that may be absent, which an empty one
// meant as well.
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

// sliceInputs: starts and ends, and axes if given.
func sliceInputs(e *edit) error {
	if err := requiredInputs("starts", "ends")(e); err != nil {
		return err
	}
	return optionalInput("axes", 3)(e)
}

// topKInput: k, as a vector of one element.
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

// clipBounds: min and max, of the input's element type. The defaults were the
// ends of float32 and are no bounds.
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

// padInputs: pads, and for the mode constant the value, of the input's element
// type, if it is not zero.
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

// dropMask: the mask became boolean. What it held outside training was left
// open until 12, and runtimes differ, so that one in use cannot be kept.
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

// dropoutRatio: the ratio. A mask in use is refused as by dropMask.
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

// axisInput: the axis of DFT, whose default went from 1 to -2.
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

// countParts says into how many parts Split splits if no sizes are given.
func countParts(e *edit) error {
	if e.input(1) == "" {
		e.set(intAttribute("num_outputs", int64(len(e.node.Output))))
	}
	return nil
}

var errMask = errors.New("its mask is used, whose contents outside training were undefined before opset 12")

func errMissing(attribute string) error {
	return fmt.Errorf("its required attribute %s is missing", attribute)
}
