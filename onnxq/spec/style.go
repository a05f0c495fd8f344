package spec

import (
	"fmt"
	"strings"
)

// PerChannel as a block size asks for one scale for the whole reduction axis.
const PerChannel = -1

// Style is the form in which a model holds quantized weights.
type Style string

const (
	DQ    Style = "dq"    // codes behind a DequantizeLinear, or what stands for it
	QDQ   Style = "qdq"   // float weights behind QuantizeLinear and DequantizeLinear: fake quantization
	NBits Style = "nbits" // codes that ONNX Runtime's MatMulNBits and GatherBlockQuantized read; where they cannot, as in DQ
)

// ScaleRule is a way to find the power of two that scales a microscaling block
// whose largest magnitude is amax.
type ScaleRule string

const (
	RuleOCP  ScaleRule = "ocp"  // floor(log2(amax)) less the largest exponent of an element: the specification's, and the default for 4 bits
	RuleCeil ScaleRule = "ceil" // ceil(log2(amax / largest element)): ModelOpt's, and the default for 8 bits
)

// ExternalData says where tensor payloads are written.
type ExternalData string

const (
	ExternalAuto   ExternalData = "auto"   // beside the model once it would pass 2 GiB
	ExternalAlways ExternalData = "always" // beside the model
	ExternalNever  ExternalData = "never"  // in the model; an error past 2 GiB
)

// Check refuses what is none of these; "" means ExternalAuto.
func (e ExternalData) Check() error {
	switch e {
	case "", ExternalAuto, ExternalAlways, ExternalNever:
		return nil
	}
	return fmt.Errorf("external data %q: want auto, always or never", e)
}

// Target is what shall run the output. Weights get the form that it executes
// well, and blocks that it can take; docs/targets.md says which.
type Target string

const (
	Portable Target = "portable" // the types and operators that the standard has for a format
	ORT      Target = "ort"      // ONNX Runtime, on a CPU
	TensorRT Target = "tensorrt"
	OpenVINO Target = "openvino" // on a CPU
)

// Targets lists every target, Portable first.
func Targets() []Target {
	return []Target{Portable, ORT, TensorRT, OpenVINO}
}

func JoinTargets() string {
	var names []string
	for _, t := range Targets() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// BlockName says what a block size means.
func BlockName(block int) string {
	if block == PerChannel {
		return "per channel"
	}
	return fmt.Sprintf("block %d", block)
}
