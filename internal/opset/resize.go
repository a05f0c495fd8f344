package opset

import (
	"errors"
	"fmt"
	"slices"
)

// Upsample and Resize.

// upsampleToResize replaces Upsample, which opset 10 deprecated.
func upsampleToResize(e *edit) error {
	e.become("Resize", e.node.Input...)
	e.model.enlarging[e.node] = true
	return nil
}

// resizeModes sets modes that Resize did not have before: coordinates are x/scale (asymmetric), and
// nearest rounds down if the scale is at least 1, else up. A node that may have scales of both kinds
// becomes two nodes, one for each kind. (A scale just above 1 may keep the length of an axis. Then the
// axis is copied, because the scale of opset 11 is the ratio of the lengths, 1.)
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
	if e.model.to < 13 {
		roi = e.floatVector("roi") // required, but not used with these coordinates
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

// directions reports whether some scales may enlarge, and whether some may shrink.
func (e *edit) directions(scales string) (up, down bool) {
	if e.model.enlarging[e.node] {
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

// resizeSizes removes the input scales if there are sizes: it had to be an empty tensor,
// and now must be absent. It replaces the removed coordinates tf_half_pixel_for_nn,
// (x+0.5)/scale, by half_pixel, (x+0.5)/scale - 0.5, with another rounding that makes up
// for the half. That exists for two of the four roundings.
func resizeSizes(e *edit) error {
	if e.input(3) != "" {
		e.setInput(2, "")
	}
	const removed = "tf_half_pixel_for_nn"
	coordinates, err := e.stringAttribute("coordinate_transformation_mode", "half_pixel")
	if err != nil || coordinates != removed {
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
		return fmt.Errorf("coordinates %s were removed, and there is no replacement for mode %s with %s", removed, mode, rounding)
	}
	e.set(stringAttribute("coordinate_transformation_mode", "half_pixel"))
	e.set(stringAttribute("nearest_mode", instead))
	return nil
}
