package onnxq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/actpairs"
	"onnxquant/internal/discover"
	"onnxquant/internal/target"
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
	s, block, activations := o.engine().Static, spec.PerChannel, cmp.Or(o.engine().Static.Type, "uint8")
	format := o.weightFormat()
	switch {
	case format == spec.Int4:
		activations = cmp.Or(o.ActivationType, "uint16")
		if strings.HasSuffix(string(activations), "16") {
			block = target.DefaultInt4
		}
	case format == spec.FP8E4M3:
		activations = spec.ActivationsFP8
	case s.PerTensor:
		block = spec.PerTensor
	}
	o.Block, o.ActivationType = cmp.Or(o.Block, block), cmp.Or(o.ActivationType, activations)
	o.SymmetricActivations = o.SymmetricActivations || s.Symmetric
	switch {
	case format == spec.Int4:
		o.Format = format
	case format == "" && o.ActivationType == spec.ActivationsFP8:
		o.Format = spec.FP8E4M3
	case o.Format == "" && o.Bits == 0:
		if o.Format = s.Format; o.Format == "" {
			o.Bits = 8
		}
	}
	return o
}

// weightFormat is the format of weights that is asked for, or "".
func (o Options) weightFormat() spec.Format {
	if o.Format != "" || o.Bits == 0 {
		return o.Format
	}
	format, _, _ := spec.Resolve(o.Bits, "", 0, o.ZeroPoint)
	return format
}

// checkStaticWeights refuses formats and blocks that the target does not take beside static activations.
func (o Options) checkStaticWeights() error {
	s, format := o.engine().Static, o.weightFormat()
	switch {
	case (format == "" || format == spec.FP8E4M3) && o.ActivationType == spec.ActivationsFP8 && !slices.Contains(s.Formats, spec.FP8E4M3):
		return fmt.Errorf("activations of %s are for target %s", spec.FP8E4M3, spec.TensorRT)
	case o.Block > 0 && format != spec.Int4:
		return errors.New("static activations: weights have one scale, or one per channel (block -1), not blocks")
	case (format == spec.FP8E4M3) != (o.ActivationType == spec.ActivationsFP8) && slices.Contains(s.Formats, spec.FP8E4M3):
		return fmt.Errorf("static activations: weights of %s go with activations of %[1]s, not with other types", spec.FP8E4M3)
	case format == "" || format == spec.Int8 || format == spec.Uint8:
	case !slices.Contains(s.Formats, format):
		if format.Bits() == 4 && o.Target != spec.QNN && format == spec.Int4 {
			return errors.New("static activations: weights must be int8 or uint8, of 8 bits; int4 is for target qnn")
		}
		where := ""
		if format == spec.FP8E4M3 {
			where = fmt.Sprintf("; that is for target %s", spec.TensorRT)
		}
		return fmt.Errorf("static activations: weights must be %s, not %s%s", orList(append([]spec.Format{spec.Int8, spec.Uint8}, s.Formats...)), format, where)
	case format == spec.Int4 && (o.Block == spec.PerTensor || o.Block != 0 && !s.Int4.Possible(o.Block)):
		return fmt.Errorf("target %s takes int4 in %s, or per channel (block -1), not %s", o.Target, s.Int4, spec.BlockName(o.Block))
	case format == spec.Int4 && o.Block > 0 && !strings.HasSuffix(string(o.ActivationType), "16"):
		return fmt.Errorf("target %s takes blocks of int4 beside activations of 16 bits alone: leave out the activation type or the block size", o.Target)
	}
	return nil
}

func orList(formats []spec.Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return english.WordSeries(names, "or")
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
		case len(o.FloatActivations) > 0 || len(o.WideActivations) > 0:
			return errors.New("lists of activations need static activations")
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
	case len(o.WideActivations) > 0 && !o.TakesWide():
		return fmt.Errorf("16-bit activations beside others of %s: not for target %s", o.ActivationType, o.engine().Target)
	case o.Format == spec.Uint8 && o.ActivationType == "int8":
		return errors.New("uint8 weights need uint8 or 16-bit activations: ONNX Runtime has no operators for int8 with uint8")
	}
	return nil
}

// TakesWide reports whether some activations can have 16 bits beside others of 8 bits: the target computes both.
func (o Options) TakesWide() bool {
	if o.Activations != spec.Static || o.engine() == nil {
		return false
	}
	typ := o.withStatic().ActivationType
	return o.engine().Static.Wide && (typ == "uint8" || typ == "int8")
}

// named makes a set of names.
func named(list []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range list {
		set[name] = true
	}
	return set
}

// static resolves the options of static activations; nil if activations are not static.
func (o Options) static() *discover.StaticOptions {
	if o.Activations != spec.Static {
		return nil
	}
	typ, _ := o.ActivationType.DType() // checkStatic has checked it
	s := o.engine().Static
	codes := actpairs.Codes{Type: typ, Symmetric: o.SymmetricActivations, MinRange: s.MinRange}
	return &discover.StaticOptions{Ranges: o.Ranges, Codes: codes, Placement: s.Placement, Coarse: o.CoarseActivations, Products: o.FloatProducts, Inner: o.FloatInner, Tables: o.FullTables, Others: o.OtherWeights, Float: named(o.FloatActivations), Wide: named(o.WideActivations)}
}
