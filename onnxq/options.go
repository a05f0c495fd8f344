package onnxq

import (
	"errors"
	"fmt"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"slices"
	"strings"
)

const (
	defaultMemory = 64 << 20
)

// Options say how a model is quantized. The zero value of a field means the
// default named beside it.
type Options struct {
	Bits      int            // 2, 4 or 8; default 4
	Block     int            // elements along the reduction axis that share a scale, at least 2, or PerChannel; default 128, 32 for integers of 8 bits, or the format's own
	Format    spec.Format    // one of Formats; default from Bits and ZeroPoint
	ZeroPoint bool           // asymmetric codes: each block has a zero point
	Algorithm string         // rtn
	ScaleRule spec.ScaleRule // of the microscaling formats; default the format's own
	Range     string         // of the integer formats: what codes shall cover of a block, minmax (default), percentile:P or mse
	Target    spec.Target    // default Portable
	Style     spec.Style     // default DQ, but NBits where the target is better off with it

	Ops         []string // operators whose weights are quantized; default MatMul and Gemm; "all" means every known one
	Include     []string // globs on weight or node names: when given, only what matches
	Exclude     []string // globs on weight or node names: left in float
	MinElements int64    // weights of fewer elements stay in float

	Precision *rules.Precision // overrides for single weights

	Importance *rules.Importance // of what blocks run along, for the encodings of ggml
	Names      *rules.Names      // what weights are called there; nil: what they are called in the model

	ExternalData spec.ExternalData // default ExternalAuto
	Threads      int               // default: the number of CPUs
	Memory       int64             // bytes of buffers for tensors, shared by the threads; default 64 MiB
	Strict       bool              // a selected weight that cannot be quantized is an error
	MinCoverage  float64           // the least share, 0 to 1, of the bytes of float tensors that has to be quantized
	NoVerify     bool              // do not reopen and check what was written

	// Progress, if set, is told the bytes worked on so far, of input and of what is
	// read back, and the total. Calls come from one goroutine at a time.
	Progress func(done, total int64)
}

var defaultOps = []string{"MatMul", "Gemm"}

// Check finds what is wrong with the options whatever the model, such as a format
// that the style or the target does not have. Model.Plan does the same.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	if o.Block < 2 && o.Block != 0 && o.Block != spec.PerChannel {
		return o, fmt.Errorf("block size %d: want at least 2, or -1 for one scale per channel", o.Block)
	}
	if o.Algorithm == "" {
		o.Algorithm = "rtn"
	}
	if !slices.Contains(spec.KnownAlgorithms, o.Algorithm) {
		return o, fmt.Errorf("algorithm %q is not known (known: %s)", o.Algorithm, strings.Join(spec.KnownAlgorithms, ", "))
	}
	if o.Format != spec.Float {
		if _, _, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint); err != nil {
			return o, err
		}
	}
	narrow, err := spec.ParseRange(o.Range)
	if err != nil {
		return o, err
	}
	if family := o.Format.Traits().Family; narrow.Name != "minmax" && o.Format != "" && o.Format != spec.Float && family != spec.Integer {
		return o, fmt.Errorf("range %q is for integer formats, not for %s", o.Range, o.Format)
	}
	o.Range = narrow.String()
	if o.Importance != nil && o.Precision == nil && o.Format.Encoding() == nil {
		return o, errors.New("an importance matrix is for the encodings of ggml, such as q4_k")
	}
	switch o.ScaleRule {
	case "", spec.RuleOCP, spec.RuleCeil:
	default:
		return o, fmt.Errorf("scale rule %q: want ocp or ceil", o.ScaleRule)
	}
	if o.Target == "" {
		o.Target = spec.Portable
	}
	r := target.Of(o.Target)
	if r == nil {
		return o, fmt.Errorf("target %q is not known (known: %s)", o.Target, spec.JoinTargets())
	}
	if o.Format != spec.Float {
		format, block, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
		if err != nil {
			return o, err
		}
		if err := r.Check(o.Style, format, block, o.Block != 0); err != nil {
			return o, err
		}
	}
	switch o.Style {
	case "", spec.DQ, spec.QDQ, spec.NBits:
	default:
		return o, fmt.Errorf("style %q: want dq, qdq or nbits", o.Style)
	}
	if family := o.Format.Traits().Family; o.Format != "" && o.Format != spec.Float {
		switch {
		case o.Style == spec.NBits && !o.Format.Scaled():
			return o, fmt.Errorf("style nbits is of integers with a scale for each block, not of %s", o.Format)
		case o.Style == spec.QDQ && family != spec.Integer && family != spec.Float8:
			return o, fmt.Errorf("style qdq: QuantizeLinear does not make %s", o.Format)
		}
	}
	switch {
	case len(o.Ops) == 0:
		o.Ops = defaultOps
	case slices.Contains(o.Ops, "all"):
		o.Ops = reach.KnownOps
	}
	for _, op := range o.Ops {
		if !slices.Contains(reach.KnownOps, op) {
			return o, fmt.Errorf("operator %q is not known (known: %s, all)", op, strings.Join(reach.KnownOps, ", "))
		}
	}
	switch o.ExternalData {
	case "":
		o.ExternalData = spec.ExternalAuto
	case spec.ExternalAuto, spec.ExternalAlways, spec.ExternalNever:
	default:
		return o, fmt.Errorf("external data %q: want auto, always or never", o.ExternalData)
	}
	switch {
	case !(o.MinCoverage >= 0 && o.MinCoverage <= 1):
		return o, fmt.Errorf("coverage %g: want 0 to 1", o.MinCoverage)
	case o.MinElements < 0:
		return o, fmt.Errorf("min elements %d is negative", o.MinElements)
	case o.Threads < 0:
		return o, fmt.Errorf("%d threads", o.Threads)
	case o.Memory < 0:
		return o, fmt.Errorf("%d bytes of memory", o.Memory)
	case o.Memory == 0:
		o.Memory = defaultMemory
	}
	return o, nil
}
