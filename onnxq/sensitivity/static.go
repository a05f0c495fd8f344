package sensitivity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"onnxquant/calib"
	"onnxquant/internal/run/synth"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/rules"
	"onnxquant/spec"
)

// The damage that static activations may do to the outputs without limits of the user: a mean KL divergence of 0.01
// nats, or an SQNR of 27 dB. Larger errors are heard in speech that a model denoises.
const (
	DefaultLimit        = 0.01
	DefaultNumbersLimit = 0.002
)

// StaticFit says which activations are quantized, and what that does to the outputs.
type StaticFit struct {
	onnxq.StaticActivations
	Options  onnxq.Options // with ranges, and with formats of weights that are decoded
	Limits   Limits
	Warnings []string
}

// Static finds how the model at path gets static activations: the ranges of the activations, by running it on
// samples, and which activations stay in float. Those do the most damage; the others hold the limits, or without
// limits DefaultLimit. If nothing holds them, the error wraps ErrLimit, unless o.AllowFallback is set. o are the options of the conversion. A quarter of the samples is held out: damage is measured
// there. Samples and outputs stay in memory, up to 512 MiB. With o.Algorithm GPTQ or Best, data find codes of weights, too, in a
// temporary file: the caller closes the fit when it needs the options no more.
func Static(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits) (*StaticFit, error) {
	o.Balance = nil // of other ranges
	s := &static{path: path, data: opts, fit: &StaticFit{Options: o, Limits: limits}}
	if s.algorithm = o.Algorithm; o.Algorithm == spec.GPTQ {
		s.fit.Options.Algorithm = spec.MSE // of weights that are decoded
	}
	if !limits.given() {
		s.fit.Limit = DefaultLimit
	}
	defer s.close()
	for _, step := range []func(context.Context) error{s.open, s.ranges, s.rest, s.run, s.narrow, s.balance, s.clip, s.codes, s.mix, s.codesAgain} {
		if err := step(ctx); err != nil {
			s.fit.Close()
			return nil, err
		}
	}
	return s.fit, nil
}

// static is the state of Static. Each step completes the options of the fit for the steps behind it.
type static struct {
	path  string
	all   *calibrate.Data
	data  calibrate.Options // of the samples that are not held out, once open has run
	model *onnxq.Model
	held  *Sensitivity // the float model's outputs; nil if none can be compared
	fit   *StaticFit
	loss  *onnxq.OutputLoss // with the options of the fit, and all activations in codes; nil if it is not known

	algorithm spec.Algorithm // of codes that are found by data, or ""
}

func (s *static) close() {
	if s.held != nil {
		s.held.Close()
	}
	if s.model != nil {
		s.model.Close()
	}
}

// open opens the model, and divides the samples.
func (s *static) open(ctx context.Context) (err error) {
	if s.model, err = s.float(); err != nil {
		return err
	}
	s.all = calibrate.New(s.path, s.data)
	if err := s.all.Open(ctx); err != nil {
		return err
	}
	s.fit.HeldOut = s.all.Len() / 4
	s.fit.Samples = s.all.Len() - s.fit.HeldOut
	s.data.Samples = s.fit.Samples
	return nil
}

// float opens the model, folded and with factors if the options say so. The values of the folded model are values of the model at
// the path, which the samples run through.
func (s *static) float() (*onnxq.Model, error) {
	m, err := onnxq.Open(s.path)
	if err != nil {
		return nil, err
	}
	made := m
	if s.fit.Options.Fold {
		made, err = m.Folded()
	}
	if err == nil {
		made, err = withBalance(made, s.fit.Options)
	}
	if err != nil {
		m.Close()
	}
	return made, err
}

// ranges finds the ranges of activations.
func (s *static) ranges(ctx context.Context) error {
	opts, f := s.data, s.fit
	if opts.Method.Name == "" {
		opts.Method, opts.Scheme = calib.Method{Name: "minmax"}, calib.Scheme{Bits: 8}
	}
	path, remove, err := s.exposed(ctx)
	if err != nil {
		return err
	}
	defer remove()
	found, err := calibrate.Ranges(ctx, path, opts)
	if err != nil {
		return err
	}
	found.Model = rules.RangesModel{}
	f.Options.Ranges, f.Engine, f.Method, f.Warnings, f.NoRange = found.Ranges, found.Engine, found.Method, found.Warnings, found.Without
	return nil
}

// rest gives weights that static activations do not reach codes that are decoded: those of operators without codes, such as
// LSTM, and those beside activations without a range, such as in a branch that no sample takes. Operators that the
// user selects are all there are.
func (s *static) rest(context.Context) error {
	o := &s.fit.Options
	if len(o.Ops) > 0 {
		return nil
	}
	o.OtherWeights = true
	p, err := s.model.Plan(*o)
	if err != nil {
		return err
	}
	var names []string
	multiplied := map[string]bool{}
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Keep && len(t.Shape) > 1 && unreached(t.Reason) && slices.ContainsFunc(t.Consumers, isProduct) {
			names = append(names, t.Name)
			multiplied[t.Name] = !slices.ContainsFunc(t.Consumers, isNoMatrixProduct)
		}
	}
	before := o.Precision
	if err := decodeWeights(o, names, multiplied); err != nil {
		return err
	}
	if o.Precision != before {
		s.loss = nil
	}
	return nil
}

// unreached reports whether a reason to stay in float is about activations.
func unreached(reason string) bool {
	return strings.HasPrefix(reason, "read by ") || strings.HasSuffix(reason, " has no range") || strings.HasPrefix(reason, "codes are too coarse for the range of ")
}

// isProduct reports whether a consumer, such as MatMul:1, multiplies a weight, or looks it up.
func isProduct(consumer string) bool {
	op, _, _ := strings.Cut(consumer, ":")
	return slices.Contains(onnxq.KnownOps(), op)
}

func isNoMatrixProduct(consumer string) bool {
	op, _, _ := strings.Cut(consumer, ":")
	return op != "MatMul" && op != "Gemm"
}

// decodeWeights gives weights codes of 8 bits in blocks of 32, which are decoded. Where int4 is asked for, those of
// matrix products, multiplied, have 4 bits.
func decodeWeights(o *onnxq.Options, names []string, multiplied map[string]bool) error {
	int4 := o.Bits == 4 || o.Format == spec.Int4
	entries := o.Precision.Entries()
	given := len(entries)
	slices.Sort(names)
	for _, name := range names {
		format, pattern := spec.Int8, rules.PatternOf(name)
		if int4 && multiplied[name] {
			format = spec.Int4
		}
		if !slices.ContainsFunc(entries, func(e rules.PrecisionEntry) bool { return e.Pattern == pattern }) {
			entries = append(slices.Clip(entries), rules.PrecisionEntry{Pattern: pattern, Override: spec.Candidate{Format: format, Block: 32}.Override()})
		}
	}
	if len(entries) == given {
		return nil
	}
	precision, err := rules.NewPrecision(entries...)
	if err != nil {
		return fmt.Errorf("formats of weights: %w", err)
	}
	o.Precision = precision
	return nil
}

// exposed returns the path of a model that shows the values in bodies of If, or that of the model.
func (s *static) exposed(ctx context.Context) (path string, remove func(), err error) {
	m, err := onnxq.Open(s.path)
	if err != nil {
		return "", nil, err
	}
	defer m.Close()
	if path, remove, err = exposed(ctx, m.Graph()); path == "" {
		path = s.path
	}
	return path, remove, err
}

// run runs the float model on all samples.
func (s *static) run(ctx context.Context) (err error) {
	s.held, err = s.heldOut(ctx)
	return err
}

// mix finds the activations that stay in float.
func (s *static) mix(ctx context.Context) error {
	if s.held == nil {
		return nil
	}
	all, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	return s.held.leaveFloat(ctx, s.model, s.fit, all)
}

// lossOfAll is the loss on held-out samples if all activations have codes.
func (s *static) lossOfAll(ctx context.Context) (onnxq.OutputLoss, error) {
	if s.loss == nil {
		loss, err := s.held.lossOfOutput(ctx, s.model, s.fit.Options)
		if err != nil {
			return loss, err
		}
		s.loss = &loss
	}
	return *s.loss, nil
}

// heldOut runs the float model on all samples. It returns nil if no output can be compared.
func (s *static) heldOut(ctx context.Context) (held *Sensitivity, err error) {
	engine := s.all.Engine()
	if fp8(s.fit.Options) {
		engine = engine.Plain() // ONNX Runtime's optimizations make operators of FP8 codes that it has not
	}
	held = &Sensitivity{path: s.path, opts: s.data, engine: engine, all: true}
	m := s.model.Graph().File
	if held.outputs = all(m.Proto.GetGraph()); len(held.outputs) == 0 {
		return nil, nil
	}
	if held.session, err = held.engine.Open(ctx, s.path); err == nil {
		err = held.run(s.all)
	}
	if err == nil {
		held.states = synth.Carried(m)
		err = held.link(ctx)
	}
	if held.session != nil { // its process takes memory
		held.session.Close()
		held.session = nil
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}
