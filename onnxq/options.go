package onnxq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/actpairs"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/half"
	"onnxquant/internal/nearest"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Options say how a model is quantized. The zero value of each field is its default.
type Options struct {
	// Bits is 2, 4 or 8; default 4.
	Bits int

	// Block is the number of elements along the reduction axis that share a scale: at least 2, or
	// spec.PerChannel. The default is the format's own block size, if it has one; else 32 for
	// integers of 8 bits and 128 for others. With the target portable it is halved, down to 16, where it
	// does not divide the axis and a smaller size does: OpenVINO and TensorRT refuse short blocks.
	Block int

	// Format is one of spec.Formats. The default is integers of Bits bits, unsigned with ZeroPoint.
	Format spec.Format

	// ConvFormat is the format of convolutions. If Format has codes of fewer than 8 bits, the
	// default is int8, or uint8 with ZeroPoint. Otherwise the default is Format.
	ConvFormat spec.Format

	// ZeroPoint asks for asymmetric codes: each block has a zero point.
	ZeroPoint bool

	// Algorithm finds codes and scales; default RTN. Formats other than integers take RTN, MSE,
	// GPTQ and Best.
	Algorithm spec.Algorithm

	// ScaleType is the type of the scales of integer formats in float32 models; default
	// ScaleFloat32.
	ScaleType spec.ScaleType

	// ScaleRule is for the microscaling formats; default: the format's own rule.
	ScaleRule spec.ScaleRule

	// Range is the clipping range of a block, for integer formats. Range.Of has the default.
	Range spec.Range

	// Target is the runtime for which the model is written; default Portable.
	Target spec.Target

	// AccuracyLevel is the attribute of MatMulNBits. 0 means AccuracyInt8, the fastest.
	// AccuracyUnset writes no attribute.
	AccuracyLevel spec.AccuracyLevel

	// NoFoldBias keeps the bias of a MatMulNBits in an Add behind it.
	NoFoldBias bool

	// Style is how weights are decoded. The default is DQ, or NBits for weights that the target
	// runs faster with it.
	Style spec.Style

	// DecodeOnce has Cast and Mul decode weights where ONNX Runtime would decode a DequantizeLinear at every run, also if
	// Target is portable: it folds them when it loads the model. Such weights take as much memory there as floats.
	DecodeOnce bool

	// Smallest has Target ORT keep codes in memory, even where it then takes more time than with floats.
	// Otherwise such weights become floats again when the model is loaded.
	Smallest bool

	// Activations is what operators compute with; default WeightsOnly. With Dynamic and Static,
	// weights are int8 or uint8, with one scale each or one per channel (Block spec.PerChannel). With
	// Static and target QNN they may be int4, in blocks, too.
	// Two kinds of weights are decoded instead: those that Precision gives another format, and with
	// Dynamic those whose operator cannot compute with codes.
	Activations spec.Activations

	// ReduceRange, with Dynamic and Static, limits codes to 7 bits: on some processors sums of
	// products overflow with 8.
	ReduceRange bool

	// FullTables, with Static and ReduceRange, leaves 8 bits to tables that are looked up alone: nothing sums their codes.
	FullTables bool

	// Ranges has the range of each activation, which Activations Static needs. Static puts a
	// QuantizeLinear and a DequantizeLinear around activations where the target wants them. With
	// FloatType Float16, Ranges tells which nodes have values near the limit of float16 and stay in
	// float32.
	Ranges *rules.Ranges

	// ActivationType, with Static, is the type of codes; default uint8, int8 for TensorRT, uint16 beside int4.
	ActivationType spec.ActivationType

	// SymmetricActivations, with Static, puts zero points in the middle of the codes. TensorRT
	// always has this.
	SymmetricActivations bool

	// CoarseActivations, with Static, quantizes activations even if codes are too coarse for their
	// range.
	CoarseActivations bool

	// FloatActivations, with Static, stay in float, and the operators that read or make them. WideActivations have codes
	// of 16 bits beside others of 8 bits, if the target computes both. Both are names, or paths of values in subgraphs;
	// sensitivity.Static finds them.
	FloatActivations, WideActivations []string

	// FloatProducts, with Static, has products of matrices make floats from codes. The operators beside them compute in float,
	// unless a convolution made the codes that they read. sensitivity.Static decides about it.
	FloatProducts bool

	// FloatInner, with Static, leaves in float what is inside of normalizations, Gelu and HardSwish that are written out as single operators.
	FloatInner bool

	// Fold folds constants into weights and biases before codes are chosen: a BatchNormalization, Mul or
	// Add of constants beside a product. Constants of which only the shape is read, and those that
	// nothing reads, go. The model computes the same.
	Fold bool

	// Codes are codes of weights, with Static, that Plan.FindCodes has found. Others are rounded to nearest.
	Codes *Codes

	// Balance divides the channels of activations by factors, which weights compensate: the model computes the
	// same. It has the exponents of the factors by the name of the activation; a factor is 2^(exponent/8).
	// sensitivity.Static finds them. The output records them, for verify.
	Balance map[string][]int8

	// NoBalance has sensitivity.Static find none.
	NoBalance bool

	// StripNotes leaves out the doc strings and the metadata of nodes, such as stack traces of exporters.
	StripNotes bool

	// FixDims has sizes of dimensions, by their symbolic name or as INPUT:AXIS. The output declares them.
	FixDims map[string]int64

	// Ops lists the operators whose weights are quantized. The default is MatMul and Gemm, with
	// Static all of StaticOps. "all" means all of KnownOps.
	Ops []string

	// Include has globs on weight or node names. If it is not empty, only weights that match are
	// quantized.
	Include []string

	// Exclude has globs on weight or node names that stay in float.
	Exclude []string

	// MinElements keeps weights with fewer elements in float.
	MinElements int64

	// Precision has settings for single weights.
	Precision *rules.Precision

	// FloatType is the type of what stays in float; default: as in the model. Without Bits, Format
	// and Precision nothing is quantized then.
	FloatType spec.FloatType

	// HalfIO, with FloatType, converts inputs and outputs of the model, too.
	HalfIO bool

	// OtherWeights, with Static, gives weights of operators that are not in Ops the formats of Precision, too, if
	// these are decoded.
	OtherWeights bool

	// FloatOps, with FloatType, lists operators that stay in float32, besides spec.FloatOps.
	FloatOps []string

	// ClampFloats, with FloatType, clamps values beyond its range to its largest value. Otherwise
	// the operators that read such values stay in float32.
	ClampFloats bool

	// Importance is the importance of the columns of weights, for ggml encodings.
	Importance *rules.Importance

	// Names has the names of weights in Importance. nil: the names in the model.
	Names *rules.Names

	// CacheScales has the scales of key-value caches by input of the model: one, one per head, or one per channel of each
	// head, finite and above 0. These caches become int8: inputs and outputs of the model have codes. They must name all
	// caches of the model. calibrate.Data.CacheScales finds them.
	CacheScales map[string][]float32

	// Calibration runs the model on samples. Algorithms awq, gptq and best find codes by the inputs
	// that layers get there; awq and gptq need it. Package calibrate makes one.
	Calibration Calibration

	// ExternalData says when tensors go to files of their own; default ExternalAuto.
	ExternalData spec.ExternalData

	// ExternalDataName is the name of the external data file. The default is the name of the model
	// with .data appended.
	ExternalDataName string

	// ShardSize is the size from which on a file of external data takes no further tensor. The
	// default is no limit, or what the Target can read.
	ShardSize int64

	// Threads is the number of threads; default: the number of CPUs.
	Threads int

	// Memory is the size in bytes of the buffers of all threads together; default 64 MiB. By default calibration
	// takes more, and so does algorithm best: for a layer up to half of the memory that is free, for several
	// layers at once up to 2 GiB of it.
	Memory int64

	// AllowFallback allows that settings in these options are not applied. See Model.Plan.
	AllowFallback bool

	// AllowFallbackOf is AllowFallback for some settings, as Fallback.Setting calls them.
	AllowFallbackOf []string

	// Strict makes it an error if a selected weight cannot be quantized.
	Strict bool

	// MinCoverage is the least share of the bytes of float tensors to quantize, 0 to 1. Less is an
	// error.
	MinCoverage float64

	// Try, if set, is called with the path of the finished output before the output gets its name. If it
	// returns an error, nothing is written.
	Try func(ctx context.Context, path string) error

	// FindLevels, if set, chooses the accuracy_level of each MatMulNBits whose level is not set otherwise. It is called
	// with the path of the finished output, before Try, and with the names of weights by the names of their codes. Weights
	// that it returns get another level. sensitivity.Levels has one.
	FindLevels func(ctx context.Context, path string, weights map[string]string) (map[string]spec.AccuracyLevel, error)

	// NoVerify skips reading the output again to check it.
	NoVerify bool

	// Provenance, if set, is recorded in the metadata of the output. The conversion adds the Input.
	Provenance *spec.Step

	// Progress, if set, is called with the bytes processed so far and the total. It counts bytes
	// read for quantizing and bytes read back for verifying. Calls do not overlap.
	Progress func(done, total int64)

	// Resume continues an interrupted calibration of the same output, model, data and options.
	// Without one, calibration starts from the beginning.
	Resume bool

	// CalibrationStore is a folder with the codes that Plan.FindShare found, or "". It is for algorithm GPTQ.
	CalibrationStore string

	// Tune is the number of steps by which the scales that Calibration finds are tuned, so that the outputs of the
	// whole model come closer to the float model's. 0: they are not tuned.
	Tune int

	// Tuning, if set, is called after each of these steps.
	Tuning func(done, total int)

	// Calibrating, if set, is called during calibration with the elapsed time and an estimate of
	// the total, in nanoseconds. In the last call both are equal.
	Calibrating func(done, total int64)

	// Notify, if set, is called if Calibration waits for another process or has nothing to resume.
	Notify func(text string)
}

// KnownOps lists the operators whose weights can be quantized: ONNX's, and those of domain
// com.microsoft.
func KnownOps() []string { return slices.Clone(reach.KnownOps) }

var defaultOps = []string{"MatMul", "Gemm"}

// Check finds errors in the options that do not depend on the model, such as a format that
// the target does not support. Model.Plan checks the same.
func (o Options) Check() error {
	_, err := o.resolve()
	return err
}

// resolve checks the options, fills in the defaults and converts them for the stages.
func (o Options) resolve() (r convert.Options, err error) {
	asked := o.asked()
	if o.engine() == nil {
		return r, fmt.Errorf("target %q is not known (known: %s)", o.Target, spec.JoinTargets())
	}
	if o.Activations == spec.Dynamic {
		o.Block = cmp.Or(o.Block, spec.PerTensor)
		if o.Format == "" && o.Bits == 0 {
			o.Bits = 8
		}
	}
	if o.Activations == spec.Static {
		o = o.withStatic()
	}
	if o.FloatType != "" && o.Bits == 0 && o.Format == "" && o.Precision == nil {
		if err := o.checkFloatAlone(); err != nil {
			return r, err
		}
		o.Format = spec.Float
	}
	for _, check := range []func() error{
		o.checkActivations,
		o.checkStatic,
		o.checkNumbers,
		o.checkFormat,
		o.checkCalibration,
		o.checkTarget,
		o.checkStyle,
		o.checkConvolutions,
		o.checkOps,
	} {
		if err := check(); err != nil {
			return r, err
		}
	}
	r = convert.Options{
		Discover: discover.Options{
			Ops:           o.Ops,
			Include:       rules.NewPatterns(o.Include),
			Exclude:       rules.NewPatterns(o.Exclude),
			MinElements:   o.MinElements,
			Strict:        o.Strict,
			Bits:          o.Bits,
			Format:        o.Format,
			ConvFormat:    o.ConvFormat,
			Block:         o.Block,
			ZeroPoint:     o.ZeroPoint,
			Style:         o.Style,
			DecodeOnce:    o.DecodeOnce,
			Smallest:      o.Smallest,
			AccuracyLevel: o.AccuracyLevel,
			NoFoldBias:    o.NoFoldBias,
			Rule:          o.ScaleRule,
			Algorithm:     cmp.Or(o.Algorithm, spec.RTN),
			ScaleType:     o.ScaleType,
			Range:         o.Range,
			Asked:         asked,
			Calibrated:    o.Calibration != nil,
			Memory:        work.LayerMemory(o.Memory),
			Activations:   cmp.Or(o.Activations, spec.WeightsOnly),
			ReduceRange:   o.ReduceRange,
			Static:        o.static(),
			Target:        o.engine(),
			Precision:     o.Precision,
			Importance:    o.Importance,
			Names:         o.Names,
		},
		Fold:        o.Fold,
		Balance:     o.Balance,
		Codes:       o.codes(),
		FixDims:     o.FixDims,
		StripNotes:  o.StripNotes,
		Caches:      o.CacheScales,
		External:    write.External{When: cmp.Or(o.ExternalData, spec.ExternalAuto), Name: o.ExternalDataName, Shard: o.ShardSize},
		Threads:     o.Threads,
		Memory:      cmp.Or(o.Memory, work.DefaultMemory),
		Together:    work.GroupMemory(o.Memory),
		Alone:       work.LayerMemory(o.Memory),
		MinCoverage: o.MinCoverage,
		NoVerify:    o.NoVerify,
		Try:         o.Try,
		FindLevels:  o.FindLevels,
		Provenance:  o.Provenance,
		Progress:    o.Progress,
		Calibration: activationsOf(o.Calibration),
		Resume:      o.Resume,
		Shared:      o.CalibrationStore,
		Calibrating: o.Calibrating,
		Tune:        o.tuning(),
		Notify:      o.Notify,
	}
	if r.Half, err = o.half(); err != nil {
		return r, err
	}
	all := len(o.Ops) == 0 || slices.Contains(o.Ops, "all")
	switch {
	case all && o.Activations == spec.Static:
		r.Discover.Ops = actpairs.Operators()
	case len(o.Ops) == 0:
		r.Discover.Ops = defaultOps
	case slices.Contains(o.Ops, "all"):
		r.Discover.Ops = reach.KnownOps
	}
	return r, nil
}

// asked says which settings are not defaults.
func (o Options) asked() discover.Asked {
	return discover.Asked{
		Format: o.Format != "" || o.Bits != 0, Block: o.Block != 0, Algorithm: o.Algorithm != "", Calibration: o.Calibration != nil,
		ScaleType: o.ScaleType != "", Style: o.Style != "", Activations: o.Activations != "",
	}
}

// engine is the runtime of the target; nil if the target is not known.
func (o Options) engine() *target.Engine { return target.Of(cmp.Or(o.Target, spec.Portable)) }

// half resolves the options of FloatType. If nothing is quantized, Exclude keeps nodes and weights
// in float32. Otherwise Exclude keeps weights from being quantized.
func (o Options) half() (*half.Options, error) {
	to, err := o.FloatType.DType()
	if err != nil {
		return nil, err
	}
	if o.FloatType == "" {
		if o.HalfIO || o.ClampFloats || len(o.FloatOps) > 0 {
			return nil, errors.New("HalfIO, FloatOps and ClampFloats need a FloatType")
		}
		return nil, nil
	}
	h := &half.Options{To: to, KeepIO: !o.HalfIO, FloatOps: o.FloatOps, Ranges: o.Ranges, Clamp: o.ClampFloats}
	h.KeepCrashingTranspose = o.engine().TransposeCrashes
	if o.Format == spec.Float {
		h.Excluded = func(name string) bool {
			return slices.ContainsFunc(o.Exclude, func(pattern string) bool { return rules.MatchName(pattern, name) })
		}
	}
	return h, h.Check()
}

// checkFloatAlone refuses settings of quantization if there is only a FloatType and nothing is
// quantized.
func (o Options) checkFloatAlone() error {
	for _, setting := range []struct {
		given bool
		name  string
	}{
		{o.Block != 0, "a block size"},
		{o.ZeroPoint, "zero points"},
		{o.Algorithm != "", "an algorithm"},
		{o.Calibration != nil, "calibration data"},
		{o.Range != spec.Range{}, "a range"},
		{o.ScaleRule != "", "a scale rule"},
		{o.ScaleType != "", "a scale type"},
		{o.ConvFormat != "", "a format of convolutions"},
		{o.Style != "", "a style"},
		{o.AccuracyLevel != 0, "an accuracy_level"},
		{o.NoFoldBias, "biases that are not folded"},
		{o.Importance != nil, "an importance matrix"},
		{len(o.Ops) > 0, "a list of operators"},
		{len(o.Include) > 0, "included weights"},
		{o.MinElements != 0, "a least number of elements"},
		{o.MinCoverage != 0, "a least coverage"},
	} {
		if setting.given {
			return fmt.Errorf("%s alone quantizes nothing: for %s add --bits, --format or --precision-info", o.FloatType, setting.name)
		}
	}
	return nil
}

// checkActivations refuses settings that quantized activations do not support.
func (o Options) checkActivations() error {
	a, quantized := o.Activations, o.Activations == spec.Dynamic || o.Activations == spec.Static
	switch {
	case a != "" && a != spec.WeightsOnly && !quantized:
		return fmt.Errorf("activations %q: want weights, dynamic or static", a)
	case o.ReduceRange && !quantized:
		return errors.New("a reduced range needs dynamic or static activations")
	case !quantized:
		return nil
	case o.FloatType != "":
		return fmt.Errorf("%s activations need float32 where nothing is quantized: do not set a float type", a)
	case o.ScaleType.Smaller():
		return fmt.Errorf("%s activations have scales of type float32, not %s", a, o.ScaleType)
	case o.Style != "":
		return fmt.Errorf("%s activations have their own style: do not set style %s", a, o.Style)
	case a == spec.Dynamic && !o.engine().Dynamic:
		return fmt.Errorf("dynamic activations are for ONNX Runtime, not for target %s", o.Target)
	case o.Range.Kind > spec.MinMax:
		return fmt.Errorf("%s activations: the range of weights must be minmax, not %s", a, o.Range)
	case a == spec.Static:
		return o.checkStaticWeights()
	case o.Block > 0:
		return fmt.Errorf("%s activations: weights have one scale, or one per channel (block -1), not blocks", a)
	case o.Format != "" && o.Format != spec.Int8 && o.Format != spec.Uint8, o.Bits != 0 && o.Bits != 8:
		return fmt.Errorf("%s activations: weights must be int8 or uint8, of 8 bits", a)
	}
	return nil
}

func (o Options) checkNumbers() error {
	switch {
	case o.Block < 2 && o.Block != 0 && o.Block != spec.PerChannel && (o.Block != spec.PerTensor || o.Activations != spec.Dynamic && o.Activations != spec.Static):
		return fmt.Errorf("block size %d: want at least 2, or -1 for one scale per channel", o.Block)
	case !(o.MinCoverage >= 0 && o.MinCoverage <= 1):
		return fmt.Errorf("coverage %g: want 0 to 1", o.MinCoverage)
	case o.MinElements < 0:
		return fmt.Errorf("min elements %d is negative", o.MinElements)
	}
	if err := o.AccuracyLevel.Check(); err != nil {
		return err
	}
	if err := (write.External{When: o.ExternalData, Name: o.ExternalDataName, Shard: o.ShardSize}).Check(); err != nil {
		return err
	}
	return work.Check(o.Threads, o.Memory)
}

// checkFormat checks format, bits and block size, and settings that only some formats support.
func (o Options) checkFormat() error {
	if _, err := spec.ParseAlgorithm(string(cmp.Or(o.Algorithm, spec.RTN))); err != nil {
		return err
	}
	if o.Format != spec.Float {
		if _, _, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint); err != nil {
			return err
		}
	}
	if format, _, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint); err == nil && o.Format != spec.Float {
		err := cmp.Or(
			o.Algorithm.Check(format, o.ZeroPoint, o.Style, o.Range),
			o.engine().CheckAlgorithm(o.Algorithm, o.ZeroPoint),
			o.ScaleType.Check(format, o.ZeroPoint, o.Style, o.Algorithm),
			o.engine().CheckScaleType(o.ScaleType),
		)
		if err != nil {
			return err
		}
	}
	if _, err := spec.ParseScaleType(string(cmp.Or(o.ScaleType, spec.ScaleFloat32))); err != nil {
		return err
	}
	if family := o.Format.Traits().Family; o.Range.Kind > spec.MinMax && o.formatGiven() && family != spec.Integer {
		return fmt.Errorf("range %q is for integer formats, not for %s", o.Range, o.Format)
	}
	if o.Importance != nil && o.Precision == nil && o.Format.Encoding() == nil {
		return errors.New("an importance matrix is for the encodings of ggml, such as q4_k")
	}
	switch o.ScaleRule {
	case "", spec.RuleOCP, spec.RuleCeil:
		return nil
	}
	return fmt.Errorf("scale rule %q: want ocp or ceil", o.ScaleRule)
}

// formatGiven reports whether Format is set to a format other than float.
func (o Options) formatGiven() bool { return o.Format != "" && o.Format != spec.Float }

// checkTarget refuses settings that the target supports for no weight.
func (o Options) checkTarget() error {
	t := o.engine()
	if o.Format == spec.Float || o.Activations == spec.Static {
		return nil
	}
	format, block, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
	if err != nil {
		return err
	}
	err = t.Check(o.Style, format, block, o.Block != 0)
	if _, ok := t.Support(format); !ok && o.Bits == 0 && o.Format == "" {
		return fmt.Errorf("%w; %s is the default: set bits, such as 8, or the format", err, format)
	}
	return err
}

// checkStyle refuses formats that the style does not support.
func (o Options) checkStyle() error {
	switch o.Style {
	case "", spec.DQ:
	case spec.NBits:
		if o.formatGiven() && !o.Format.Scaled() && o.Format.Traits().Family != spec.Lookup && !o.Format.FloatCodes() {
			return fmt.Errorf("style nbits takes integers with one scale per block, nf4 and fp4; for Gather also fp8, nvfp4, mxfp4 and mxfp8: not %s", o.Format)
		}
		if o.Block > 0 && !discover.NBitsBlock(int64(o.Block)) {
			return fmt.Errorf("style nbits takes block sizes that are powers of two, at least 16: not %d", o.Block)
		}
	case spec.QDQ:
		if o.formatGiven() && !o.Format.MadeByQuantizeLinear() {
			return fmt.Errorf("style qdq: QuantizeLinear does not make %s", o.Format)
		}
	default:
		return fmt.Errorf("style %q: want dq, qdq or nbits", o.Style)
	}
	return nil
}

// checkConvolutions checks the format of convolutions in the same way as that of other weights.
func (o Options) checkConvolutions() error {
	if o.ConvFormat == "" {
		return nil
	}
	t := o.ConvFormat.Traits()
	o.Bits, o.Format, o.ConvFormat = 0, o.ConvFormat, ""
	if t.Family != spec.Integer {
		o.ZeroPoint, o.Range, o.ScaleType = false, spec.Range{}, ""
		if o.Algorithm.Check(o.Format, false, o.Style, o.Range) != nil { // convolutions are then rounded to nearest
			o.Algorithm, o.Calibration = spec.RTN, nil
		}
	}
	if t.Block != 0 {
		o.Block = 0
	}
	o.Importance = nil
	if err := o.Check(); err != nil {
		return fmt.Errorf("convolutions: %w", err)
	}
	return nil
}

func (o Options) checkOps() error {
	for _, op := range o.Ops {
		if op != "all" && o.Activations != spec.Static && !slices.Contains(reach.KnownOps, op) {
			if slices.Contains(actpairs.Operators(), op) {
				return fmt.Errorf("operator %q has no weights to quantize; name it with static activations only", op)
			}
			if near, ok := nearest.Name(op, reach.KnownOps); ok {
				return fmt.Errorf("operator %q is not known; did you mean %s?", op, near)
			}
			return fmt.Errorf("operator %q is not known (known: %s, all)", op, strings.Join(reach.KnownOps, ", "))
		}
	}
	return nil
}
