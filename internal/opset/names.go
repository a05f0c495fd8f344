package opset

import (
	"errors"

	"onnxquant/internal/onnxpb"
)

// Operators, attributes and types that went by other names, other defaults or
// altogether.

// scatterElements renames Scatter, which opset 11 retired.
func scatterElements(e *edit) error {
	e.become("ScatterElements", e.node.Input...)
	return nil
}

// gridModes renames the modes of GridSample.
func gridModes(e *edit) error {
	mode, err := e.stringAttribute("mode", "bilinear")
	if err != nil {
		return err
	}
	switch mode {
	case "bilinear":
		e.set(stringAttribute("mode", "linear"))
	case "bicubic":
		e.set(stringAttribute("mode", "cubic"))
	}
	return nil
}

// wholePixels names the coordinates of RoiAlign, which now start half a pixel
// off unless told otherwise.
func wholePixels(e *edit) error {
	e.set(stringAttribute("coordinate_transformation_mode", "output_half_pixel"))
	return nil
}

// floatsOnly refuses integers, which Erf and the logarithmic reductions no
// longer take; how their results were rounded was never said. An element type
// that is not known is let pass: no model with a wrong one loads.
func floatsOnly(e *edit) error {
	switch e.elemType(e.input(0)) {
	case unknown, onnxpb.TensorProto_FLOAT, onnxpb.TensorProto_FLOAT16, onnxpb.TensorProto_BFLOAT16, onnxpb.TensorProto_DOUBLE:
		return nil
	}
	return errors.New("it no longer takes integers")
}
