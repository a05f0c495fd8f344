package spec

import (
	"fmt"
	"strings"

	"onnxquant/formats/dtype"
)

// PerChannel is the block size that means one scale for the whole reduction axis.
const PerChannel = -1

// PerTensor is the block size that means one scale for the whole tensor, in the styles dynamic and
// static.
const PerTensor = -2

// Activations says what operators compute with: floats or codes.
type Activations string

const (
	WeightsOnly Activations = "weights" // floats: weights are decoded
	Dynamic     Activations = "dynamic" // codes: ranges of activations are computed at run time
	Static      Activations = "static"  // codes: ranges of activations are known beforehand
)

// ActivationType is the type of the codes of activations, with Static.
type ActivationType string

// ActivationsFP8 goes with weights of format FP8E4M3.
const ActivationsFP8 ActivationType = "fp8-e4m3"

// DType returns the element type, or 0 for "".
func (t ActivationType) DType() (dtype.DType, error) {
	switch t {
	case "":
		return 0, nil
	case "int8":
		return dtype.Int8, nil
	case "uint8":
		return dtype.Uint8, nil
	case "int16":
		return dtype.Int16, nil
	case "uint16":
		return dtype.Uint16, nil
	case ActivationsFP8:
		return dtype.Float8E4M3FN, nil
	}
	return 0, fmt.Errorf("activation type %q: want one of %v", t, ActivationTypes())
}

// ActivationTypes lists the types of the codes of activations.
func ActivationTypes() []ActivationType {
	return []ActivationType{"uint8", "int8", "uint16", "int16", ActivationsFP8}
}

// Style says which operators decode quantized weights.
type Style string

const (
	DQ    Style = "dq"    // codes and a DequantizeLinear, or its equivalent
	QDQ   Style = "qdq"   // float weights, QuantizeLinear and DequantizeLinear: fake quantization
	NBits Style = "nbits" // codes that ONNX Runtime's MatMulNBits, GatherBlockQuantized, QMoE and MatMulBnb4 read; DQ for weights that they do not support

	// StyleDynamic: operators compute with the codes. Options.Activations asks for it.
	StyleDynamic Style = "dynamic"
	// StyleStatic: codes and a DequantizeLinear; activations have a QuantizeLinear and a
	// DequantizeLinear, too. Options.Activations asks for it.
	StyleStatic Style = "static"
)

// ScaleRule says how the scale of a microscaling block, a power of two, follows from its amax
// (largest magnitude).
type ScaleRule string

const (
	RuleOCP  ScaleRule = "ocp"  // 2^(floor(log2(amax)) - largest exponent of an element): the OCP specification; default for 4 bits
	RuleCeil ScaleRule = "ceil" // 2^ceil(log2(amax / largest element)): ModelOpt; default for 8 bits
)

// ExternalData says where the contents of tensors are written.
type ExternalData string

const (
	ExternalAuto   ExternalData = "auto"   // to a second file if the model would exceed 2 GiB
	ExternalAlways ExternalData = "always" // to a second file
	ExternalNever  ExternalData = "never"  // to the model; an error if it exceeds 2 GiB
)

// Check returns an error for any other value; "" means ExternalAuto.
func (e ExternalData) Check() error {
	switch e {
	case "", ExternalAuto, ExternalAlways, ExternalNever:
		return nil
	}
	return fmt.Errorf("external data %q: want auto, always or never", e)
}

// Target is the runtime for the output. It determines the form of weights and the block sizes: see
// docs/targets.md.
type Target string

const (
	Portable Target = "portable" // ONNX's own types and operators
	ORT      Target = "ort"      // ONNX Runtime, on a CPU
	ORTWeb   Target = "ort-web"  // ONNX Runtime Web, with WebGPU
	TensorRT Target = "tensorrt"
	OpenVINO Target = "openvino" // on a CPU
	QNN      Target = "qnn"      // ONNX Runtime on Qualcomm's processors
)

// Targets lists every target, Portable first.
func Targets() []Target {
	return []Target{Portable, ORT, ORTWeb, TensorRT, OpenVINO, QNN}
}

// JoinTargets lists the targets for a message.
func JoinTargets() string {
	return strings.Join(names(Targets()), ", ")
}

// BlockName formats a block size for a message.
func BlockName(block int) string {
	switch block {
	case PerChannel:
		return "per channel"
	case PerTensor:
		return "per tensor"
	}
	return fmt.Sprintf("block %d", block)
}

// KVCache is how key-value caches are stored.
type KVCache string

// Caches of int8 codes: with one scale each, one per head, or one per channel of each head.
const (
	KVInt8           KVCache = "int8"
	KVInt8PerHead    KVCache = "int8:per-head"
	KVInt8PerChannel KVCache = "int8:per-channel"
)

// KVCaches lists them.
func KVCaches() []KVCache { return []KVCache{KVInt8, KVInt8PerHead, KVInt8PerChannel} }
