package opset

import (
	"errors"

	"onnxquant/internal/onnxpb"
)

// Operators and attributes that were renamed or got other defaults, and types that were removed.

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

// wholePixels sets the coordinate mode of RoiAlign, whose default got an offset of half a
// pixel.
func wholePixels(e *edit) error {
	e.set(stringAttribute("coordinate_transformation_mode", "output_half_pixel"))
	return nil
}

// floatsOnly refuses integers, which Erf and the logarithmic reductions no longer take.
// They cannot be rewritten, because the rounding of their results was not defined. It
// accepts an unknown element type: runtimes check it.
func floatsOnly(e *edit) error {
	switch e.elemType(e.input(0)) {
	case unknown, onnxpb.TensorProto_FLOAT, onnxpb.TensorProto_FLOAT16, onnxpb.TensorProto_BFLOAT16, onnxpb.TensorProto_DOUBLE:
		return nil
	}
	return errors.New("it no longer takes integers")
}
