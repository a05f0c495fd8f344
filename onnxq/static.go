package onnxq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/discover"
	"onnxquant/internal/static"
	"onnxquant/onnxq/spec"
)

// placements says where runtimes want pairs of QuantizeLinear and DequantizeLinear. Others get
// them where ONNX Runtime's quantize_static puts them.
var placements = map[spec.Target]static.Placement{
	spec.TensorRT: {Fused: true, KeepClips: true, FloatBias: true},
	spec.OpenVINO: {Fused: true, KeepClips: true, FloatBias: true, BeforeReshape: true},
	spec.QNN:      {EveryOp: true, ConvChannels: true, FixedScales: true},
}

// qnnRange is the least length of a range that QNN takes.
const qnnRange = 0.0001

// StaticOps lists the operators that are quantized with Activations spec.Static by default.
func StaticOps() []string { return static.Operators() }

// withStatic fills in the defaults of static activations.
func (o Options) withStatic() Options {
	block, kind := spec.PerTensor, spec.ActivationType("uint8")
	switch o.Target {
	case spec.TensorRT:
		block, kind, o.SymmetricActivations = spec.PerChannel, "int8", true
	case spec.OpenVINO:
		block = spec.PerChannel
	case spec.QNN:
		if o.Format == "" && o.Bits == 0 {
			o.Format = spec.Uint8
		}
	}
	o.Block, o.ActivationType = cmp.Or(o.Block, block), cmp.Or(o.ActivationType, kind)
	if o.Format == "" && o.Bits == 0 {
		o.Bits = 8
	}
	return o
}

// checkStatic refuses settings that static activations do not have, and theirs without them.
func (o Options) checkStatic() error {
	if o.Activations != spec.Static {
		switch {
		case o.CoarseActivations:
			return errors.New("coarse activations are for static ones")
		case o.Ranges != nil && o.FloatType != spec.Float16:
			return errors.New("ranges are for static activations and for float16")
		case o.ActivationType != "" || o.SymmetricActivations:
			return errors.New("the type and the symmetry of activations are for static ones")
		}
		return nil
	}
	if _, err := o.ActivationType.DType(); err != nil {
		return err
	}
	for _, op := range o.Ops {
		if op != "all" && !slices.Contains(static.Operators(), op) {
			return fmt.Errorf("operator %q is not quantized with static activations (known: %s, all)", op, strings.Join(static.Operators(), ", "))
		}
	}
	switch {
	case o.Ranges == nil:
		return errors.New("static activations need their ranges; onnxquant calibrate finds them")
	case o.Target == spec.ORTWeb:
		return errors.New("static activations are not for target ort-web")
	case o.Target == spec.TensorRT && o.ActivationType != "int8":
		return errors.New("TensorRT takes symmetric int8 activations only")
	case o.Target == spec.TensorRT && o.Format == spec.Uint8:
		return errors.New("TensorRT takes symmetric int8 weights only")
	case o.Target == spec.OpenVINO && strings.HasSuffix(string(o.ActivationType), "16"):
		return errors.New("OpenVINO computes with 8 bits, not with 16")
	case o.Format == spec.Uint8 && o.ActivationType == "int8":
		return errors.New("uint8 weights need uint8 or 16-bit activations: ONNX Runtime has no operators for int8 with uint8")
	}
	return nil
}

// static resolves the options of static activations; nil without them.
func (o Options) static() *discover.StaticOptions {
	if o.Activations != spec.Static {
		return nil
	}
	typ, _ := o.ActivationType.DType() // checkStatic has checked it
	codes := static.Codes{Type: typ, Symmetric: o.SymmetricActivations}
	if o.Target == spec.QNN {
		codes.MinRange = qnnRange
	}
	return &discover.StaticOptions{Ranges: o.Ranges, Codes: codes, Placement: placements[o.Target], Coarse: o.CoarseActivations}
}
