package spec

import "fmt"

// AccuracyLevel is the accuracy_level of MatMulNBits: the least exact type that ONNX Runtime may
// compute with.
type AccuracyLevel int

const (
	AccuracyDefault  AccuracyLevel = iota // AccuracyInt8, the fastest level
	AccuracyFloat32                       // activations keep their type
	AccuracyFloat16                       // activations may become float16
	AccuracyBFloat16                      // activations may become bfloat16
	AccuracyInt8                          // activations are rounded to 8 bits, as if DequantizeLinear and MatMul are fused
	AccuracyUnset                         // no attribute; ONNX Runtime then decodes 2 and 8 bits at every run
)

// Attribute is the value of the attribute; 0 means no attribute.
func (a AccuracyLevel) Attribute() int64 {
	switch a {
	case AccuracyDefault:
		return int64(AccuracyInt8)
	case AccuracyUnset:
		return 0
	}
	return int64(a)
}

// Check refuses a number that is not a level.
func (a AccuracyLevel) Check() error {
	if a < AccuracyDefault || a > AccuracyUnset {
		return fmt.Errorf("accuracy level %d: want AccuracyDefault to AccuracyUnset", a)
	}
	return nil
}
