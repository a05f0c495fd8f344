package sensitivity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"onnxquant/calib"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/graph"
	"onnxquant/internal/journal"
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

	exact bool // pure Go measured what 7 bits lose: its sums do not overflow
	wider bool // weights have 8 bits, because the limits do not hold with 7
}

// Static finds how the model at path gets static activations: the ranges of the activations, by running it on
// samples, and which activations stay in float. Those do the most damage; the others hold the limits, or without
// limits DefaultLimit. If nothing holds them, the error wraps ErrLimit, unless o.AllowFallback is set. o are the options of the conversion. A quarter of the samples is held out: damage is measured
// there. Samples and outputs above 64 MiB are in temporary files, 4 GiB at most. With o.Algorithm GPTQ or Best, data find codes of weights, too, in a
// temporary file: the caller closes the fit when it needs the options no more.
func Static(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits) (*StaticFit, error) {
	f, _, err := fitStatic(ctx, path, o, opts, limits, state{})
	return f, err
}

// fitStatic is Static with a journal.
func fitStatic(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits, at state) (*StaticFit, *journal.Journal, error) {
	o.Balance, o.FloatActivations, o.WideActivations, o.FloatProducts, o.FloatInner = nil, nil, nil, false, false // of other ranges
	given := o
	o.DecodeOnce = o.Target == "" && !o.Smallest
	f := &StaticFit{Options: o, Limits: limits}
	s := &static{fitting: fitting{path: path, data: opts, options: &f.Options, limits: limits, state: at, algorithm: o.Algorithm}, fit: f}
	if o.Algorithm == spec.GPTQ {
		f.Options.Algorithm = spec.MSE // of weights that are decoded
	}
	f.Limit = limitOf(limits)
	defer s.close()
	for _, step := range []func(context.Context) error{s.open, s.ranges, s.widths, s.inner, s.rest, s.run, s.channels, s.narrow, s.tensors, s.products, s.balance, s.clip, s.eightBits, s.narrowUnseen, s.codes, func(ctx context.Context) error { return s.atRunTime(ctx, given) }, s.mixOfBoth, s.nameInner, s.codesAgain} {
		if err := step(ctx); err != nil {
			s.fit.Close()
			return nil, nil, s.failed(err)
		}
	}
	f.Warnings = append(f.Warnings, f.warnOfFloats()...)
	f.Warnings = append(f.Warnings, limits.warnOfPoor(f.Loss, heldOut(f.HeldOut))...)
	return s.fit, s.journal, nil
}

// static is the state of Static. Each step completes the options of the fit for the steps behind it.
type static struct {
	fitting
	fit  *StaticFit
	loss *onnxq.OutputLoss // with the options of the fit, and all activations in codes; nil if it is not known

	clipper *calibrate.Clipper // histograms of values; nil: none were kept

	whole map[string]calib.Range // ranges before they were clipped; nil: none was
}

// ranges finds the ranges of activations.
func (s *static) ranges(ctx context.Context) error {
	opts, f := s.data, s.fit
	f.Samples, f.HeldOut = opts.Samples, s.apart
	path, remove, err := s.exposed(ctx)
	if err != nil {
		return err
	}
	defer remove()
	found, err := journal.Remember(s.journal, "ranges", func() (found *calibrate.Result, err error) {
		if opts.Method.Name != "" {
			return calibrate.Ranges(ctx, path, opts)
		}
		found, s.clipper, err = calibrate.RangesToClip(ctx, path, opts, s.wanted(path))
		return found, err
	})
	if err != nil {
		return err
	}
	found.Model = rules.RangesModel{}
	f.Options.Ranges, f.Engine, f.Method, f.Warnings, f.NoRange = found.Ranges, found.Engine, found.Method, found.Warnings, found.Without
	return nil
}

// wanted reports whether a value of the model at a path is one of the folded model; nil: all are wanted, as in bodies.
func (s *static) wanted(path string) func(name string) bool {
	if path != s.path {
		return nil
	}
	names := map[string]bool{}
	g := s.model.Graph().File.Proto.GetGraph()
	for _, i := range g.GetInput() {
		names[i.GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, name := range n.Output {
			names[name] = true
		}
	}
	return func(name string) bool { return names[name] }
}

// inner leaves in float what is inside of normalizations, Gelu and HardSwish that are written out, unless the target computes all operators
// with codes. The held-out samples are too few to show what a rare variance loses.
func (s *static) inner(context.Context) error {
	o := &s.fit.Options
	if o.Target == spec.QNN || o.CoarseActivations {
		return nil
	}
	o.FloatInner = len(actpairs.Inner(s.model.Graph())) > 0
	return nil
}

// nameInner names the values that would have codes, were they not inside of such functions.
func (s *static) nameInner(context.Context) error {
	o := s.fit.Options
	if !o.FloatInner {
		return nil
	}
	o.FloatInner, o.Codes = false, nil
	p, err := s.model.Plan(o)
	if err != nil {
		return err
	}
	coded, found := map[string]bool{}, p.Stages().Static()
	for _, t := range found.Tensors {
		coded[t.Value.Path] = true
	}
	for _, v := range found.Coarse {
		coded[v.Path] = true
	}
	for _, v := range actpairs.Inner(s.model.Graph()) {
		if coded[v.Path] {
			s.fit.Inner = append(s.fit.Inner, v.Path)
		}
	}
	return nil
}

// rest gives weights that static activations do not reach codes that are decoded.
func (s *static) rest(context.Context) error {
	o := &s.fit.Options
	before := o.Precision
	if err := s.decodeRest(o); err != nil {
		return err
	}
	if o.Precision != before {
		s.loss = nil
	}
	return nil
}

// decodeRest changes options so that such weights are decoded: those of operators without codes, such as LSTM, and those beside
// activations without a range, such as in a branch that no sample takes. Operators that the user selects are all there are.
func (s *static) decodeRest(o *onnxq.Options) error {
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
	return decodeWeights(o, names, multiplied)
}

// unreached reports whether a reason to stay in float is about activations.
func unreached(reason string) bool {
	return strings.HasPrefix(reason, "read by ") || strings.HasSuffix(reason, " has no range") || strings.HasSuffix(reason, " because of its loss") || strings.HasPrefix(reason, "codes are too coarse for the range of ")
}

// isProduct reports whether a consumer, such as MatMul:1, multiplies a weight, or looks it up.
func isProduct(consumer string) bool {
	op, input, _ := strings.Cut(consumer, ":")
	return slices.Contains(onnxq.KnownOps(), op) && !(input == "3" && (op == "LSTM" || op == "GRU")) // their bias has two axes
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

// mix finds the activations that stay in float.
func (s *static) mix(ctx context.Context) error {
	if s.held == nil {
		return nil
	}
	f := s.fit
	p, err := s.model.Plan(f.Options)
	if err != nil {
		return err
	}
	groups := groupsOf(p.Stages().Static())
	f.Of, f.Coarse = len(groups), nil
	for _, v := range p.Stages().Static().Coarse {
		f.Coarse = append(f.Coarse, v.Path)
	}
	x := &mix{
		Sensitivity: s.held, model: s.model, noun: "activation", parts: names(groups), limits: f.Limits, generous: true,
		options: &f.Options, loss: &outcome{limit: f.Limit}, warn: &f.Warnings,
		leave: func(o *onnxq.Options, parts []int) error { return keepFloat(s.model.Graph(), o, groups, parts) },
		widen: s.widener(groups),
		trials: func(ctx context.Context) (*measure, error) {
			t, done, err := s.held.trialsOf(ctx, s.model.Graph(), groups)
			if err != nil {
				return nil, err
			}
			return &measure{t.damage, done, maxBlocks, fewSamples}, nil
		},
	}
	if f.AtRunTime != nil {
		x.reached = &f.AtRunTime.Damage
	}
	all, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	err = x.find(ctx, all)
	f.Wide = append(f.Wide, x.wide...)
	f.Float, f.Loss, f.All, f.Weights, f.Limit, f.Met = x.float, x.loss.loss, x.loss.all, x.loss.weights, x.loss.limit, x.loss.met
	return err
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

// keepFloat changes options so that some groups stay in float. The weights of their operators get codes
// that are decoded, in blocks of 32.
func keepFloat(x *graph.Graph, o *onnxq.Options, groups []*group, float []int) error {
	o.FloatActivations = slices.Clip(o.FloatActivations)
	seen := map[*graph.Value]bool{}
	for _, i := range float {
		for _, t := range groups[i].all {
			o.FloatActivations = append(o.FloatActivations, t.Value.Path)
			for _, u := range t.Value.Uses {
				for _, w := range x.Inputs(u.Node) {
					seen[w] = true
				}
			}
			if t.Value.Node != nil {
				for _, w := range x.Inputs(t.Value.Node) {
					seen[w] = true
				}
			}
		}
	}
	var weights []string
	multiplied := map[string]bool{}
	for w := range seen {
		if w != nil && w.Tensor != nil && w.ElemType().Float() && len(w.Tensor.GetDims()) > 1 {
			weights = append(weights, w.Name)
			multiplied[w.Name] = !slices.ContainsFunc(w.Uses, func(u graph.Use) bool { return isNoMatrixProduct(u.Node.GetOpType()) })
		}
	}
	return decodeWeights(o, weights, multiplied)
}

func names(groups []*group) (all []string) {
	for _, g := range groups {
		all = append(all, g.own.Value.Path)
	}
	return all
}
