package spec

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
)

// ScaleType is the type of the stored scales of integer formats, in float32 models. Weights of
// other types have scales of their own type.
type ScaleType string

const (
	ScaleFloat32 ScaleType = "float32"
	ScaleFloat16 ScaleType = "float16" // a Cast decodes them
	ScaleInt8    ScaleType = "int8"    // times a float32 of the tensor: Cast and Mul decode them
	ScaleUint8   ScaleType = "uint8"   // likewise, for positive scales
)

// ScaleTypes lists every scale type.
func ScaleTypes() []ScaleType { return []ScaleType{ScaleFloat32, ScaleFloat16, ScaleInt8, ScaleUint8} }

// ParseScaleType returns the scale type called name.
func ParseScaleType(name string) (ScaleType, error) {
	if s := ScaleType(name); slices.Contains(ScaleTypes(), s) {
		return s, nil
	}
	var known []string
	for _, s := range ScaleTypes() {
		known = append(known, string(s))
	}
	return "", fmt.Errorf("scale type %q is not known (known: %s)", name, strings.Join(known, ", "))
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

// Stepped reports whether scales are multiples of a float32 of the tensor.
func (s ScaleType) Stepped() bool { return s == ScaleInt8 || s == ScaleUint8 }

// Check returns an error if a weight with these settings cannot have the scale type.
func (s ScaleType) Check(format Format, zeroPoint bool, style Style, a Algorithm, t Target) error {
	switch {
	case !s.Smaller():
		return nil
	case format.Traits().Family != Integer:
		return fmt.Errorf("scale type %s is for integer formats, not for %s", s, format)
	case style == QDQ:
		return fmt.Errorf("style qdq: QuantizeLinear takes scales of the weight's type, not %s", s)
	case t == TensorRT || t == QNN:
		return fmt.Errorf("scale type %s: target %s takes scales that are stored as they are, not decoded", s, t)
	case a == HQQ:
		return fmt.Errorf("algorithm hqq has scales as ONNX Runtime's quantizer, not of type %s", s)
	case s == ScaleUint8 && a == RTNofORT && !zeroPoint:
		return fmt.Errorf("algorithm %s has negative scales, which scale type %s does not hold", a, s)
	}
	return nil
}
