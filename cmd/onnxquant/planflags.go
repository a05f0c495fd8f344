package main

import (
	"slices"

	"github.com/spf13/pflag"

	"onnxquant/internal/reach"
	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// planFlags are the flags that decide what becomes of weights.
type planFlags struct {
	opts          onnxq.Options
	precisionInfo string
}

func (f *planFlags) define(fs *pflag.FlagSet) {
	o := &f.opts
	fs.Var(number[int]{&o.Bits, func(n int) bool { return n == 2 || n == 4 || n == 8 }, "2, 4 or 8"}, "bits",
		"bits of a code: 2, 4 or 8 (default 4)")
	fs.Var(number[int]{&o.Block, func(n int) bool { return n >= 2 || n == spec.PerChannel }, "at least 2, or -1 for one scale per channel"}, "block",
		"weights along the reduction axis that share a scale,\nat least 2; -1: one scale per channel (default 128; 32 for\n8 bits; mxfp and nvfp4 have their own)")
	fs.Var(choice[spec.Format]{&o.Format, codedFormats(), "FORMAT"}, "format",
		"what weights become:\n"+wrap(oneOf(codedFormats()))+"\n(default: intN, with --zero-point uintN, N from --bits)")
	fs.BoolVar(&o.ZeroPoint, "zero-point", false,
		"asymmetric codes: each block has a zero point")
	fs.Var(choice[string]{&o.Algorithm, spec.KnownAlgorithms, "NAME"}, "algorithm",
		"how codes and scales are found: rtn, round to nearest\n(default rtn)")
	fs.Var(choice[spec.ScaleRule]{&o.ScaleRule, []spec.ScaleRule{spec.RuleOCP, spec.RuleCeil}, "NAME"}, "scale-rule",
		"how mxfp4 and mxfp8 round scales to powers of two: ocp or\nceil (default ocp for 4 bits, ceil for 8)")
	fs.Var(choice[spec.Target]{&o.Target, spec.Targets(), "NAME"}, "target",
		"what shall run OUT, so that it gets forms and blocks that\nthis executes well: portable, ort, tensorrt or openvino\n(default portable: whatever has the standard's operators)")
	fs.Var(blockRange{&o.Range}, "range",
		"what integer codes cover of a block: minmax, all; mse, what\ngives the least squared error; or percentile:P\n(default minmax)")
	fs.Var(choice[spec.Style]{&o.Style, []spec.Style{spec.DQ, spec.QDQ, spec.NBits}, "NAME"}, "style",
		"how OUT holds weights: dq, codes behind DequantizeLinear;\nqdq, floats behind QuantizeLinear and DequantizeLinear;\nnbits, codes of MatMulNBits and GatherBlockQuantized\n(default dq)")
	fs.Var(choices{&o.Ops, slices.Concat(reach.KnownOps, []string{"all"})}, "ops",
		"operators whose weights are quantized, of\n"+wrapped(reach.KnownOps, 54)+",\nor all (default MatMul,Gemm)")
	fs.StringArrayVar(&o.Include, "include", nil,
		"quantize only what has a weight or node name that\nmatches `GLOB`; may be repeated")
	fs.StringArrayVar(&o.Exclude, "exclude", nil,
		"leave what has a weight or node name that matches\n`GLOB` in float; may be repeated")
	fs.Var(notNegative(&o.MinElements), "min-elements",
		"leave weights of fewer elements in float")
	fs.StringVar(&f.precisionInfo, "precision-info", "",
		"settings for single weights, a JSON `FILE`")
}

// codedFormats are the formats that a whole model can have.
func codedFormats() []spec.Format {
	var names []spec.Format
	for _, f := range spec.Formats() {
		if f != spec.Float {
			names = append(names, f)
		}
	}
	return names
}

// finish checks the flags once they are parsed, and reads the file they name.
func (f *planFlags) finish(fs *pflag.FlagSet) (err error) {
	format := f.opts.Format
	if format != "" && f.opts.Bits != 0 && f.opts.Bits != format.Bits() {
		return usagef("--format %s has %d bits, not the %d of --bits", format, format.Bits(), f.opts.Bits)
	}
	if err := f.opts.Check(); err != nil {
		return usagef("%v", err)
	}
	if fs.Changed("precision-info") {
		f.opts.Precision, err = rules.LoadPrecision(f.precisionInfo)
	}
	return err
}
