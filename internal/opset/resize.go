package opset

import (
	"errors"
	"fmt"
	"slices"
)

// Upsample and Resize.

// upsampleToResize replaces the operator, which opset 10 retired.
func upsampleToResize(e *edit) error {
	e.become("Resize", e.node.Input...)
	e.enlarging[e.node] = true
	return nil
}

// resizeModes spells out what Resize did before it had a choice: coordinates
// map as x/scale (asymmetric), and nearest means the next lower one where the
// scale is at least 1, the next higher one where it is below. A node whose
// scales may be of both kinds becomes two, each of one kind. (An axis that a
// scale just above 1 leaves at its length then stays as it is, as the ratio of
// the lengths, which opset 11 calls the scale, is 1.)
func resizeModes(e *edit) error {
	scales := e.input(1)
	if scales == "" {
		return errors.New("its input scales is missing")
	}
	mode, err := e.stringAttribute("mode", "nearest")
	if err != nil {
		return err
	}
	roi := ""
	if e.to < 13 {
		roi = e.floatVector("roi") // required, but not read with these coordinates
	}
	e.set(stringAttribute("coordinate_transformation_mode", "asymmetric"))
	e.node.Input = []string{e.input(0), roi, scales}
	if mode != "nearest" {
		return nil
	}
	up, down := e.directions(scales)
	if up && down {
		one := e.float("one", 1)
		larger := e.produce("Max", []string{scales, one})
		enlarged := e.produce("Resize", []string{e.input(0), roi, larger},
			append(slices.Clone(e.node.Attribute), stringAttribute("nearest_mode", "floor"))...)
		e.setInput(0, enlarged)
		e.setInput(2, e.produce("Min", []string{scales, one}))
	}
	if down {
		e.set(stringAttribute("nearest_mode", "ceil"))
	} else {
		e.set(stringAttribute("nearest_mode", "floor"))
	}
	return nil
}

// directions reports whether any of the scales may enlarge, and may shrink.
func (e *edit) directions(scales string) (up, down bool) {
	if e.enlarging[e.node] {
		return true, false
	}
	values := e.floats(scales)
	if values == nil {
		return true, true
	}
	for _, v := range values {
		up, down = up || v > 1, down || v < 1
	}
	return up, down
}

// resizeSizes leaves out scales where sizes are given: they had to be an empty
// tensor, now they have to be absent. The coordinates tf_half_pixel_for_nn,
// (x+0.5)/scale, are gone; they are half_pixel ones, (x+0.5)/scale - 0.5, if
// rounding makes up for the half, which it can for two of four roundings.
func resizeSizes(e *edit) error {
	if e.input(3) != "" {
		e.setInput(2, "")
	}
	const gone = "tf_half_pixel_for_nn"
	coordinates, err := e.stringAttribute("coordinate_transformation_mode", "half_pixel")
	if err != nil || coordinates != gone {
		return nil
	}
	mode, err := e.stringAttribute("mode", "nearest")
	if err != nil {
		return err
	}
	rounding, err := e.stringAttribute("nearest_mode", "round_prefer_floor")
	if err != nil {
		return err
	}
	instead := map[string]string{"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}[rounding]
	if mode != "nearest" || instead == "" {
		return fmt.Errorf("coordinates %s were removed, and mode %s with %s has no other form", gone, mode, rounding)
	}
	e.set(stringAttribute("coordinate_transformation_mode", "half_pixel"))
	e.set(stringAttribute("nearest_mode", instead))
	return nil
}
