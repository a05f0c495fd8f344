package onnxq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/half"
	"onnxquant/internal/nearest"
	"onnxquant/internal/reach"
	"onnxquant/internal/static"
	"onnxquant/internal/target"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// Options say how a model is quantized. The zero value of a field means the default named
// beside it.
type Options struct {
	Bits          int                // 2, 4 or 8; default 4
	Block         int                // elements along the reduction axis that share a scale, at least 2, or spec.PerChannel; default 128, 32 for integers of 8 bits, or the format's own
	Format        spec.Format        // one of spec.Formats; default: integers of Bits bits, unsigned with ZeroPoint
	ConvFormat    spec.Format        // of convolutions; default: int8 where Format has codes of fewer bits, uint8 with ZeroPoint
	ZeroPoint     bool               // asymmetric codes: each block has a zero point
	Algorithm     spec.Algorithm     // default RTN; formats other than integers have RTN, LeastAngle, GPTQ and Best
	ScaleType     spec.ScaleType     // of the scales of integer formats, in float32 models; default ScaleFloat32
	ScaleRule     spec.ScaleRule     // for the microscaling formats; default: the format's own
	Range         spec.Range         // for the integer formats: the range that the codes of a block cover; default as Range.Of says
	Target        spec.Target        // default Portable
	AccuracyLevel spec.AccuracyLevel // attribute of MatMulNBits; 0: AccuracyInt8, the fastest; AccuracyUnset: no attribute
	NoFoldBias    bool               // MatMulNBits gets no bias: an Add adds it
	Style         spec.Style         // default DQ, or NBits for weights that the target runs faster with it

	// Activations is what operators compute with; default WeightsOnly. With Dynamic and Static,
	// weights are int8 or uint8 with one scale each, or one per channel (Block spec.PerChannel);
	// those that Precision gives another format are decoded, and with Dynamic those that no
	// operator computes with as codes.
	Activations spec.Activations
	ReduceRange bool // Dynamic and Static: codes of 7 bits, for processors whose sums of products overflow

	// With Activations Static, activations have a QuantizeLinear and a DequantizeLinear where the
	// target wants them. Ranges must have the range of each. With FloatType Float16, nodes whose
	// values come near its end, by Ranges, stay in float32.
	Ranges               *rules.Ranges
	ActivationType       spec.ActivationType // default uint8, or int8 for TensorRT
	SymmetricActivations bool                // the zero points are the middle of the codes; always so for TensorRT
	CoarseActivations    bool                // activations are quantized even if codes are too coarse for their range

	Ops         []string // operators whose weights are quantized; default MatMul and Gemm, with Static all of StaticOps; "all" means all of KnownOps
	Include     []string // globs on weight or node names: only these are quantized, if given
	Exclude     []string // globs on weight or node names: these stay in float
	MinElements int64    // weights with fewer elements stay in float

	Precision *rules.Precision // overrides for single weights

	FloatType   spec.FloatType // type of what stays float; default: as in the model. Without Bits, Format and Precision nothing is quantized
	HalfIO      bool           // with FloatType: inputs and outputs of the model get the type, too
	FloatOps    []string       // with FloatType: operators that stay in float32, besides spec.FloatOps
	ClampFloats bool           // with FloatType: values beyond its range become its largest; otherwise what reads them stays in float32

	Importance *rules.Importance // importance of the columns of weights, for the encodings of ggml
	Names      *rules.Names      // names of weights in Importance; nil: as in the model

	// Calibration runs the model on samples. Algorithms awq, gptq and best find codes by the inputs that
	// layers get there; awq and gptq need it. Package activations makes one.
	Calibration Calibration

	ExternalData     spec.ExternalData // default ExternalAuto
	ExternalDataName string            // name of the external data file; default: as the model with .data
	ShardSize        int64             // size of an external data file from which on the next tensor begins another; default: one file, or what the Target reads
	Threads          int               // default: the number of CPUs
	Memory           int64             // bytes of buffers for all threads together; default 64 MiB
	Strict           bool              // a selected weight that cannot be quantized is an error
	MinCoverage      float64           // least share of the bytes of float tensors that must be quantized, 0 to 1; less is an error
	NoVerify         bool              // do not reopen and check the output

	// Provenance, if set, is recorded in the metadata of the output; the conversion adds the Input.
	Provenance *provenance.Step

	// Progress, if set, is called with the bytes processed so far, read for quantizing and
	// read back for verifying, and the total. Calls do not overlap.
	Progress func(done, total int64)
	// Resume goes on from where a calibration was interrupted that had the same output, model, data
	// and options. Without such a one it begins anew.
	Resume bool
	// Calibrating, if set, is called while codes are found by Calibration, with the time that was spent and an
	// estimate of what all takes, in nanoseconds. The last call has the same twice.
	Calibrating func(done, total int64)
	// Notify, if set, is told that Calibration waits for another process, or has nothing to resume.
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
	for _, check := range []func() error{o.checkActivations, o.checkStatic, o.checkNumbers, o.checkFormat, o.checkCalibration, o.checkTarget, o.checkStyle, o.checkConvolutions, o.checkOps} {
		if err := check(); err != nil {
			return r, err
		}
	}
	r = convert.Options{
		Discover: discover.Options{
			Ops: o.Ops, Include: rules.NewPatterns(o.Include), Exclude: rules.NewPatterns(o.Exclude), MinElements: o.MinElements, Strict: o.Strict,
			Bits: o.Bits, Format: o.Format, ConvFormat: o.ConvFormat, Block: o.Block, ZeroPoint: o.ZeroPoint, Style: o.Style, AccuracyLevel: o.AccuracyLevel, NoFoldBias: o.NoFoldBias, Rule: o.ScaleRule, Algorithm: cmp.Or(o.Algorithm, spec.RTN), ScaleType: o.ScaleType, Range: o.Range, Memory: cmp.Or(o.Memory, work.DefaultMemory), Calibrated: o.Calibration != nil,
			Activations: cmp.Or(o.Activations, spec.WeightsOnly), ReduceRange: o.ReduceRange, Static: o.static(),
			Target:    target.Of(cmp.Or(o.Target, spec.Portable)),
			Precision: o.Precision, Importance: o.Importance, Names: o.Names,
		},
		External: write.External{When: cmp.Or(o.ExternalData, spec.ExternalAuto), Name: o.ExternalDataName, Shard: o.ShardSize},
		Threads:  o.Threads, Memory: cmp.Or(o.Memory, work.DefaultMemory),
		MinCoverage: o.MinCoverage, NoVerify: o.NoVerify, Provenance: o.Provenance, Progress: o.Progress,
		Calibration: activationsOf(o.Calibration), Resume: o.Resume, Calibrating: o.Calibrating, Notify: o.Notify,
	}
	if r.Half, err = o.half(); err != nil {
		return r, err
	}
	all := len(o.Ops) == 0 || slices.Contains(o.Ops, "all")
	switch {
	case all && o.Activations == spec.Static:
		r.Discover.Ops = static.Operators()
	case len(o.Ops) == 0:
		r.Discover.Ops = defaultOps
	case slices.Contains(o.Ops, "all"):
		r.Discover.Ops = reach.KnownOps
	}
	return r, nil
}

// half resolves the options of FloatType. Where nothing is quantized, Exclude keeps nodes and
// weights in float32; otherwise it keeps weights from being quantized.
func (o Options) half() (*half.Options, error) {
	to, err := o.FloatType.DType()
	if err != nil {
		return nil, err
	}
	if o.FloatType == "" {
		if o.HalfIO || o.ClampFloats || len(o.FloatOps) > 0 {
			return nil, errors.New("HalfIO, FloatOps and ClampFloats are for a FloatType")
		}
		return nil, nil
	}
	h := &half.Options{To: to, KeepIO: !o.HalfIO, FloatOps: o.FloatOps, Ranges: o.Ranges, Clamp: o.ClampFloats}
	h.KeepCrashingTranspose = o.Target == "" || o.Target == spec.Portable || o.Target == spec.ORT
	if o.Format == spec.Float {
		h.Excluded = func(name string) bool {
			return slices.ContainsFunc(o.Exclude, func(pattern string) bool { return rules.MatchName(pattern, name) })
		}
	}
	return h, h.Check()
}

// checkFloatAlone refuses settings of quantizing where there is a FloatType and nothing is quantized.
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

// checkActivations refuses settings that quantized activations do not have.
func (o Options) checkActivations() error {
	a, quantized := o.Activations, o.Activations == spec.Dynamic || o.Activations == spec.Static
	switch {
	case a != "" && a != spec.WeightsOnly && !quantized:
		return fmt.Errorf("activations %q: want weights, dynamic or static", a)
	case o.ReduceRange && !quantized:
		return errors.New("a reduced range is for dynamic and static activations")
	case !quantized:
		return nil
	case o.FloatType != "":
		return fmt.Errorf("%s activations are float32 where they are not codes: leave the float type", a)
	case o.ScaleType.Smaller():
		return fmt.Errorf("%s activations have scales of type float32, not %s", a, o.ScaleType)
	case o.Style != "":
		return fmt.Errorf("%s activations have a style of their own, not %s", a, o.Style)
	case a == spec.Dynamic && o.Target != "" && o.Target != spec.Portable && o.Target != spec.ORT:
		return fmt.Errorf("dynamic activations are for ONNX Runtime, not for target %s", o.Target)
	case o.Range.Kind > spec.MinMax:
		return fmt.Errorf("%s activations: the range of weights is minmax, not %s", a, o.Range)
	case o.Block > 0:
		return fmt.Errorf("%s activations: one scale for a weight, or one per channel (block -1), not blocks", a)
	case o.Format != "" && o.Format != spec.Int8 && o.Format != spec.Uint8, o.Bits != 0 && o.Bits != 8:
		return fmt.Errorf("%s activations: weights are int8 or uint8", a)
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

// checkFormat checks format, bits, block size and the settings for certain formats only.
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
		if err := o.Algorithm.Check(format, o.ZeroPoint, o.Style, o.Range, cmp.Or(o.Target, spec.Portable)); err != nil {
			return err
		}
		if err := o.ScaleType.Check(format, o.ZeroPoint, o.Style, o.Algorithm, cmp.Or(o.Target, spec.Portable)); err != nil {
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

// formatGiven reports whether Format is set, and not to float.
func (o Options) formatGiven() bool { return o.Format != "" && o.Format != spec.Float }

// checkTarget refuses settings that the target supports for no weight.
func (o Options) checkTarget() error {
	t := target.Of(cmp.Or(o.Target, spec.Portable))
	if t == nil {
		return fmt.Errorf("target %q is not known (known: %s)", o.Target, spec.JoinTargets())
	}
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
	family := o.Format.Traits().Family
	switch o.Style {
	case "", spec.DQ:
	case spec.NBits:
		if o.formatGiven() && !o.Format.Scaled() && family != spec.Lookup {
			return fmt.Errorf("style nbits is of integers with a scale for each block, nf4 and fp4, not of %s", o.Format)
		}
		if o.Block > 0 && !discover.NBitsBlock(int64(o.Block)) {
			return fmt.Errorf("style nbits takes block sizes that are powers of two, at least 16: not %d", o.Block)
		}
	case spec.QDQ:
		if o.formatGiven() && family != spec.Integer && family != spec.Float8 {
			return fmt.Errorf("style qdq: QuantizeLinear does not make %s", o.Format)
		}
	default:
		return fmt.Errorf("style %q: want dq, qdq or nbits", o.Style)
	}
	return nil
}

// checkConvolutions checks the format of convolutions like that of other weights.
func (o Options) checkConvolutions() error {
	if o.ConvFormat == "" {
		return nil
	}
	t := o.ConvFormat.Traits()
	o.Bits, o.Format, o.ConvFormat = 0, o.ConvFormat, ""
	if t.Family != spec.Integer {
		o.ZeroPoint, o.Range, o.ScaleType = false, spec.Range{}, ""
		if o.Algorithm.Check(o.Format, false, o.Style, o.Range, o.Target) != nil { // they are rounded to nearest
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
			if slices.Contains(static.Operators(), op) {
				return fmt.Errorf("operator %q has no weights to quantize; with activations static it may be named", op)
			}
			if near, ok := nearest.Name(op, reach.KnownOps); ok {
				return fmt.Errorf("operator %q is not known; did you mean %s?", op, near)
			}
			return fmt.Errorf("operator %q is not known (known: %s, all)", op, strings.Join(reach.KnownOps, ", "))
		}
	}
	return nil
}
