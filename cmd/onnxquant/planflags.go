package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/othertools"
	"onnxquant/internal/target"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// planFlags are the flags that determine the plan.
type planFlags struct {
	opts          onnxq.Options
	precisionInfo string
	ranges        string

	float16, bfloat16, keepIO, noFold bool
}

func (f *planFlags) define(fs *pflag.FlagSet) {
	o := &f.opts
	fs.VarP(specvalue.BitCount{To: &o.Bits}, "bits", "b",
		"bits of a code: 2, 4 or 8 (default 4)")
	fs.VarP(cli.Number[int]{Value: &o.Block, Valid: func(n int) bool { return n >= 2 || n == spec.PerChannel || n == spec.PerTensor }, Want: "at least 2, or -1 for one scale per channel"}, "block", "g",
		"block size: weights along the reduction axis that share a\nscale, at least 2; -1: one scale per channel; -2: one for a\nweight, with --activations dynamic and static (default 128;\n32 for 8 bits; fixed for some formats; without --target the\nnext of 64, 32 and 16 that divides the axis, if one does)")
	fs.VarP(specvalue.NewFormat(&o.Format, specvalue.CodedFormats()), "format", "f",
		"format of quantized weights:\n"+cli.OneOf(specvalue.CodedFormats())+"\n(default: intN, with --zero-point uintN, N from --bits)")
	fs.BoolVarP(&o.ZeroPoint, "zero-point", "z", false,
		"asymmetric codes: a zero point per block")
	fs.VarP(cli.Choice[spec.Algorithm]{Value: &o.Algorithm, Allowed: spec.Algorithms(), Kind: "NAME", Aliases: map[string]spec.Algorithm{"minmax": spec.RTN, "round": spec.RTN}}, "algorithm", "a",
		"how codes and scales of integer formats are found: "+spec.AlgorithmHelp()+" (default rtn)")
	fs.Var(cli.Choice[spec.ScaleType]{Value: &o.ScaleType, Allowed: spec.ScaleTypes(), Kind: "TYPE"}, "scale-type",
		"type of the scales of integer formats in float32 models:\nfloat32; float16; int8, times a float32 of the tensor; or\nuint8, the same without negative ones (default float32)")
	fs.Var(cli.Choice[spec.ScaleRule]{Value: &o.ScaleRule, Allowed: []spec.ScaleRule{spec.RuleOCP, spec.RuleCeil}, Kind: "NAME"}, "scale-rule",
		"how scales of mxfp4 and mxfp8 are rounded to powers of two:\nocp or ceil (default ocp for 4 bits, ceil for 8)")
	fs.VarP(cli.Choice[spec.Target]{Value: &o.Target, Allowed: spec.Targets(), Kind: "NAME", Aliases: target.Aliases()}, "target", "t",
		"runtime for OUT: "+cli.OneOf(spec.Targets())+";\nweights get forms and block sizes that it runs well\n(default portable: any runtime with the standard operators)")
	fs.Var(specvalue.BlockRange{To: &o.Range}, "range",
		"range of a block that integer codes cover: minmax, all\nvalues; mse, least squared error; percentile:P\n(default minmax; mse for 2 bits without zero points)")
	fs.Var(cli.Choice[spec.Style]{Value: &o.Style, Allowed: []spec.Style{spec.DQ, spec.QDQ, spec.NBits}, Kind: "NAME", Aliases: map[string]spec.Style{"matmulnbits": spec.NBits}}, "style",
		"how OUT stores weights: dq, codes and DequantizeLinear; qdq,\nfloats, QuantizeLinear and DequantizeLinear; nbits, codes\nfor MatMulNBits, GatherBlockQuantized, QMoE and\nMatMulBnb4 (default dq)")
	fs.BoolVar(&o.Smallest, "smallest", false,
		"with --target ort: codes stay codes in memory, even where a\nrun then takes more time than with floats")
	fs.Var(cli.Choice[spec.Activations]{Value: &o.Activations, Allowed: []spec.Activations{spec.WeightsOnly, spec.Dynamic, spec.Static}, Kind: "NAME"}, "activations",
		"what operators compute with: weights, which are decoded, and\nfloats; dynamic: codes of 8 bits on activations that are\nquantized at run time, as ONNX Runtime's quantize_dynamic\nwrites them; or static: QuantizeLinear and DequantizeLinear\naround activations whose --ranges are known, as its\nquantize_static or the --target wants them; --block is then\n-1 (static's default) or -2 (dynamic's); int4 is for static\nwith --target qnn, fp8-e4m3 with --target tensorrt (default\nweights)")
	fs.StringVar(&f.ranges, "ranges", "",
		"with --activations static: JSON `FILE` with the ranges of\nactivations, from onnxquant calibrate; with --float16: what\ncomes near the end of float16 by them stays float32")
	fs.Var(cli.Choice[spec.ActivationType]{Value: &o.ActivationType, Allowed: spec.ActivationTypes(), Kind: "TYPE"}, "activation-type",
		"with --activations static: uint8, int8, uint16, int16,\nor fp8-e4m3 for TensorRT (default uint8; int8 for TensorRT;\nuint16 beside int4; fp8-e4m3 beside --format fp8-e4m3)")
	fs.BoolVar(&o.SymmetricActivations, "symmetric-activations", false,
		"with --activations static: zero points in the middle of the\ncodes (always so for TensorRT)")
	fs.BoolVar(&o.CoarseActivations, "coarse-activations", false,
		"with --activations static: quantize also activations for\nwhose range codes are too coarse, such as masked scores of\nattention, as quantize_static does")
	fs.BoolVar(&o.ReduceRange, "reduce-range", false,
		"with --activations dynamic or static: codes of 7 bits, for\nprocessors without VNNI")
	fs.Var(specvalue.AccuracyLevel{To: &o.AccuracyLevel}, "accuracy-level", specvalue.AccuracyLevelHelp)
	defineNoFoldBias(fs, &o.NoFoldBias)
	fs.Var(cli.Choices{Value: &o.Ops, Allowed: allOps(), Aliases: othertools.Operators}, "ops",
		"operators whose weights are quantized:\n"+cli.OneOf(slices.Concat(onnxq.KnownOps(), []string{"all"}))+"\n(default MatMul,Gemm); with --activations static also\nothers, such as Add and MaxPool (default all of them)")
	fs.Var(specvalue.NewFormat(&o.ConvFormat, spec.Formats()), "conv-format",
		"format of the weights of convolutions: one of --format, or float\n(default int8 if the others have fewer bits, with which\nconvolutions lose too much)")
	fs.StringArrayVar(&o.Include, "include", nil,
		"quantize only weights whose name, or the name of a node that\nreads them, matches `GLOB`; may be repeated")
	fs.StringArrayVarP(&o.Exclude, "exclude", "x", nil,
		"keep weights whose name, or the name of a node that reads\nthem, matches `GLOB` in float; may be repeated")
	fs.Var(cli.NotNegative(&o.MinElements), "min-elements",
		"keep weights with fewer elements in float")
	fs.StringVarP(&f.precisionInfo, "precision-info", "p", "",
		"JSON `FILE` with settings per weight")
	fs.BoolVar(&o.Fold, "fold", false,
		"fold BatchNormalization, and Mul and Add of constants, into\nthe weights beside them (default with --activations static\n--calib, unless a weight has one scale)")
	fs.BoolVar(&f.noFold, "no-fold", false, "leave the nodes as they are")
	fs.Var(cli.SizesOf{Value: &o.FixDims}, "fix-dim",
		"size that OUT declares for a symbolic dimension, or for\nINPUT:AXIS, for NPUs, which take fixed shapes; may be repeated")
	fs.BoolVar(&o.StripNotes, "strip-notes", false,
		"leave out the doc strings and metadata of nodes, such as\nstack traces of exporters")
	fs.BoolVar(&f.float16, "float16", false,
		"make float16 what stays float32. Without --bits, --format\nand --precision-info nothing is quantized")
	fs.BoolVar(&f.bfloat16, "bfloat16", false,
		"make bfloat16 what stays float32, as --float16 does")
	fs.BoolVar(&f.keepIO, "keep-io-types", true,
		"with --float16: inputs and outputs of the model stay in\nfloat32; =false: they become float16, too")
	fs.StringSliceVar(&o.FloatOps, "float-ops", nil,
		"with --float16: `OPERATORS` that stay in float32, besides\n"+strings.Join(spec.FloatOps(), ", "))
	fs.BoolVar(&o.ClampFloats, "clamp", false,
		"with --float16: values beyond its range become its largest;\notherwise the nodes that read them stay in float32")
}

// allOps lists the values of --ops.
func allOps() []string {
	all := onnxq.KnownOps()
	for _, op := range onnxq.StaticOps() {
		if !slices.Contains(all, op) {
			all = append(all, op)
		}
	}
	return append(all, "all")
}

// finish checks the parsed flags, and reads the file of --precision-info.
func (f *planFlags) finish(fs *pflag.FlagSet) (err error) {
	if err := f.floatType(fs); err != nil {
		return err
	}
	format := f.opts.Format
	if format != "" && f.opts.Bits != 0 && f.opts.Bits != format.Bits() {
		return cli.Usagef("--format %s has %d bits, but --bits is %d", format, format.Bits(), f.opts.Bits)
	}
	for _, name := range []string{"activation-type", "symmetric-activations", "coarse-activations"} {
		if fs.Changed(name) && f.opts.Activations != spec.Static {
			return cli.Usagef("--%s is for --activations static", name)
		}
	}
	if f.opts.ReduceRange && f.opts.Activations != spec.Static && f.opts.Activations != spec.Dynamic {
		return cli.Usagef("--reduce-range is for --activations dynamic and static")
	}
	if f.opts.Activations == spec.Static && !fs.Changed("ranges") && f.opts.Ranges == nil {
		return cli.Usagef("--activations static needs --calib DATA, or --ranges FILE from onnxquant calibrate --data DATA --out FILE MODEL")
	}
	if fs.Changed("ranges") {
		var err error
		if f.opts.Ranges, err = rules.LoadRanges(f.ranges); err != nil {
			return err
		}
	}
	if f.noFold && f.opts.Fold {
		return cli.Usagef("--fold and --no-fold exclude each other")
	}
	if fs.Changed("precision-info") {
		if f.opts.Precision, err = rules.LoadPrecision(f.precisionInfo); err != nil {
			return err
		}
	}
	switch err := f.opts.Check(); {
	case errors.Is(err, onnxq.ErrNoData):
		return cli.Usagef("%v", withHint(err))
	case errors.Is(err, onnxq.ErrZeroPoint):
		return cli.Usagef("%v: add --zero-point", err)
	case err != nil:
		return cli.Usagef("%v", err)
	}
	return nil
}

// floatType resolves --float16, --bfloat16 and what goes with them.
func (f *planFlags) floatType(fs *pflag.FlagSet) error {
	switch {
	case f.float16 && f.bfloat16:
		return cli.Usagef("--float16 and --bfloat16 exclude each other")
	case f.float16:
		f.opts.FloatType = spec.Float16
	case f.bfloat16:
		f.opts.FloatType = spec.BFloat16
	default:
		for _, name := range []string{"keep-io-types", "float-ops", "clamp"} {
			if fs.Changed(name) {
				return cli.Usagef("--%s is for --float16 and --bfloat16", name)
			}
		}
	}
	f.opts.HalfIO = !f.keepIO && f.opts.FloatType != ""
	return nil
}
