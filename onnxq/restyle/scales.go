package restyle

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/lazy"
	"onnxquant/internal/recognize"
	"onnxquant/spec"
)

// smallScales returns the type in which float32 scales are stored if a Cast, or a Cast and a Mul,
// decodes them; "" for other scales.
func smallScales(d *recognize.Decoder) spec.ScaleType {
	if d.Scales == nil || d.S.DType != dtype.Float32 || d.Scales.Size() != d.S.Size() {
		return ""
	}
	for _, s := range spec.ScaleTypes() {
		if s.Smaller() && s.DType() == d.Scales.DType && s.Stepped() == (d.Step != nil) {
			return s
		}
	}
	return ""
}

// storedScales are the scales as they are to be stored.
func storedScales(d *recognize.Decoder) *lazy.Tensor {
	if smallScales(d) != "" {
		return d.Scales.Reshaped(d.S.Shape)
	}
	return d.S
}
