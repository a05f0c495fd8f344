package spec

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
)

// ScaleType is the type of the stored scales of integer formats in float32 models. In other models,
// scales have the type of the weight.
type ScaleType string

const (
	ScaleFloat32 ScaleType = "float32"
	ScaleFloat16 ScaleType = "float16" // a Cast decodes them
	ScaleInt8    ScaleType = "int8"    // multiplied by one float32 per tensor; Cast and Mul decode them
	ScaleUint8   ScaleType = "uint8"   // the same, for positive scales
)

// ScaleTypes lists every scale type.
func ScaleTypes() []ScaleType { return []ScaleType{ScaleFloat32, ScaleFloat16, ScaleInt8, ScaleUint8} }

// ParseScaleType returns the scale type called name.
func ParseScaleType(name string) (ScaleType, error) {
	if s := ScaleType(name); slices.Contains(ScaleTypes(), s) {
		return s, nil
	}
	return "", fmt.Errorf("scale type %q is not known (known: %s)", name, strings.Join(names(ScaleTypes()), ", "))
}

// DType returns the element type; Float32 for the empty ScaleType.
func (s ScaleType) DType() dtype.DType {
	switch s {
	case ScaleFloat16:
		return dtype.Float16
	case ScaleInt8:
		return dtype.Int8
	case ScaleUint8:
		return dtype.Uint8
	}
	return dtype.Float32
}

// Smaller reports whether scales take fewer bytes than float32.
func (s ScaleType) Smaller() bool { return s == ScaleFloat16 || s.Stepped() }

// Stepped reports whether scales are multiples of one float32 per tensor.
func (s ScaleType) Stepped() bool { return s == ScaleInt8 || s == ScaleUint8 }

// Check returns an error if a weight with these settings does not support the scale type.
func (s ScaleType) Check(format Format, zeroPoint bool, style Style, a Algorithm) error {
	switch {
	case !s.Smaller():
		return nil
	case format.Traits().Family != Integer:
		return fmt.Errorf("scale type %s is for integer formats, not for %s", s, format)
	case style == QDQ:
		return fmt.Errorf("style qdq: QuantizeLinear takes scales of the weight's type, not %s", s)
	case a.Traits().PlainScales:
		return fmt.Errorf("algorithm %s has the scales of ONNX Runtime's quantizer, not of type %s", a, s)
	case s == ScaleUint8 && a.Traits().NegativeScales && !zeroPoint:
		return fmt.Errorf("algorithm %s has negative scales, which scale type %s does not hold", a, s)
	}
	return nil
}
