package onnxq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/actpairs"
	"onnxquant/internal/discover"
	"onnxquant/spec"
)

// StaticOps lists the operators that Activations spec.Static quantizes by default.
func StaticOps() []string { return actpairs.Operators() }

// ScalePerChannel reports whether weights with static activations have a scale for each channel, if nothing else is
// asked for. Then Fold does not make codes of weights coarser.
func (o Options) ScalePerChannel() bool {
	return o.engine() != nil && o.withStatic().Block != spec.PerTensor
}

// withStatic fills in the defaults of static activations.
func (o Options) withStatic() Options {
	s, block := o.engine().Static, spec.PerChannel
	if s.PerTensor {
		block = spec.PerTensor
	}
	o.Block, o.ActivationType = cmp.Or(o.Block, block), cmp.Or(o.ActivationType, s.Type, "uint8")
	o.SymmetricActivations = o.SymmetricActivations || s.Symmetric
	if o.Format == "" && o.Bits == 0 {
		if o.Format = s.Format; o.Format == "" {
			o.Bits = 8
		}
	}
	return o
}

// checkStatic refuses settings that static activations do not support, and settings of static
// activations without them.
func (o Options) checkStatic() error {
	if o.Activations != spec.Static {
		switch {
		case o.CoarseActivations:
			return errors.New("coarse activations need static activations")
		case o.Ranges != nil && o.FloatType != spec.Float16:
			return errors.New("ranges need static activations or float16")
		case o.ActivationType != "" || o.SymmetricActivations:
			return errors.New("activation type and symmetric activations need static activations")
		}
		return nil
	}
	if _, err := o.ActivationType.DType(); err != nil {
		return err
	}
	for _, op := range o.Ops {
		if op != "all" && !slices.Contains(actpairs.Operators(), op) {
			return fmt.Errorf("operator %q is not quantized with static activations (known: %s, all)", op, strings.Join(actpairs.Operators(), ", "))
		}
	}
	if o.Ranges == nil {
		return errors.New("static activations need their ranges; onnxquant calibrate finds them")
	}
	why := ""
	if refuses := o.engine().Static.Refuses; refuses != nil {
		why = refuses(o.ActivationType, o.Format)
	}
	switch {
	case why != "":
		return errors.New(why)
	case o.Format == spec.Uint8 && o.ActivationType == "int8":
		return errors.New("uint8 weights need uint8 or 16-bit activations: ONNX Runtime has no operators for int8 with uint8")
	}
	return nil
}

// static resolves the options of static activations; nil if activations are not static.
func (o Options) static() *discover.StaticOptions {
	if o.Activations != spec.Static {
		return nil
	}
	typ, _ := o.ActivationType.DType() // checkStatic has checked it
	s := o.engine().Static
	codes := actpairs.Codes{Type: typ, Symmetric: o.SymmetricActivations, MinRange: s.MinRange}
	return &discover.StaticOptions{Ranges: o.Ranges, Codes: codes, Placement: s.Placement, Coarse: o.CoarseActivations, Others: o.OtherWeights}
}
