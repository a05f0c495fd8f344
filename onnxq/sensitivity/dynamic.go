package sensitivity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/discover"
	"onnxquant/internal/journal"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
)

// DynamicFit says which operators compute with codes, and what that does to the outputs.
type DynamicFit struct {
	onnxq.DynamicActivations
	Options  onnxq.Options // with formats of weights that are decoded
	Limits   Limits
	Warnings []string
}

// Dynamic finds which operators of the model at path compute with codes of activations that are quantized at run time. Those
// whose codes do the most damage compute in float; their weights are int8 codes in blocks of 32. The others hold the limits,
// or without limits DefaultLimit. If nothing holds them, the error wraps ErrLimit, unless o.AllowFallback is set. o are the
// options of the conversion; those that are not set get defaults for ONNX Runtime: all operators, a scale for each channel,
// weights that are decoded once, when the model is loaded. Each measurement converts the model and runs the result. The
// samples are divided as Static does.
func Dynamic(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits) (*DynamicFit, error) {
	f, _, err := fitDynamic(ctx, path, o, opts, limits, state{})
	return f, err
}

// fitDynamic is Dynamic with a journal.
func fitDynamic(ctx context.Context, path string, o onnxq.Options, opts calibrate.Options, limits Limits, at state) (*DynamicFit, *journal.Journal, error) {
	f := &DynamicFit{Options: withDynamic(o), Limits: limits}
	d := &dynamic{fitting{path: path, data: opts, options: &f.Options, limits: limits, state: at, algorithm: o.Algorithm}, f}
	defer d.close()
	for _, step := range []func(context.Context) error{d.open, d.run, func(ctx context.Context) error { return d.settings(ctx, o) }, d.mix} {
		if err := step(ctx); err != nil {
			return nil, nil, d.failed(err)
		}
	}
	f.Samples, f.HeldOut, f.Engine = d.data.Samples, d.apart, d.all.Engine().Name()
	f.Warnings = append(f.Warnings, limits.warnOfPoor(f.Loss, heldOut(f.HeldOut))...)
	return f, d.journal, nil
}

// dynamic is the state of Dynamic.
type dynamic struct {
	fitting
	fit *DynamicFit
}

// withDynamic fills in defaults.
func withDynamic(o onnxq.Options) onnxq.Options {
	if o.Block == 0 {
		o.Block = spec.PerChannel
	}
	if o.Target == "" {
		o.Target = spec.ORT
	}
	if len(o.Ops) == 0 { // some have no operator on codes: their weights are decoded
		o.Ops, o.AllowFallbackOf = []string{"all"}, append(slices.Clip(o.AllowFallbackOf), "activations")
	}
	return o
}

// mix finds the operators that compute in float.
func (d *dynamic) mix(ctx context.Context) error {
	f := d.fit
	if d.held != nil {
		f.Warnings = d.held.warnings
	}
	p, err := d.model.Plan(f.Options)
	if err != nil {
		return err
	}
	found, bytes := dynamicParts(p.Stages().Decisions)
	if f.Of = len(found); d.held == nil {
		return nil
	}
	parts, err := d.runnable(found)
	if err != nil {
		return err
	}
	x := &mix{
		Sensitivity: d.held, model: d.model, noun: "weight", limits: f.Limits,
		options: &f.Options, loss: &outcome{limit: limitOf(f.Limits)}, warn: &f.Warnings,
		leave: func(o *onnxq.Options, list []int) error { return decodeParts(o, parts, list) },
	}
	for _, part := range parts {
		x.parts = append(x.parts, part.paths[0])
	}
	given := f.Options
	x.trials = func(ctx context.Context) (*measure, error) { return x.conversions(ctx, given, blocksFor(bytes)) }
	all, err := d.held.lossOfOutput(ctx, d.model, f.Options)
	if err != nil {
		return err
	}
	err = x.find(ctx, all)
	f.Decoded, f.Loss, f.All, f.Weights, f.Limit, f.Met = x.float, x.loss.loss, x.loss.all, x.loss.weights, x.loss.limit, x.loss.met
	return err
}

// weights are weights whose operators compute with codes: one, or both of an LSTM.
type weights struct {
	paths []string
	kind  discover.Kind
	node  *onnxpb.NodeProto // that reads them
}

// dynamicParts lists weights whose operators compute with codes, and the sum of their bytes. Weights for which the user has
// settings are none.
func dynamicParts(all []*discover.Decision) (parts []weights, bytes int64) {
	for _, d := range all {
		if !d.Quantize || d.Choice.Style != spec.StyleDynamic || *d.Override != (spec.Override{}) {
			continue
		}
		bytes += d.Bytes
		n, kind := d.Reach.Leaves[0].Node, d.Choice.Dynamic.Kind
		if i := slices.IndexFunc(parts, func(w weights) bool { return w.node == n && w.kind == discover.Recurrent }); i >= 0 {
			parts[i].paths = append(parts[i].paths, d.Value.Path)
			continue
		}
		parts = append(parts, weights{[]string{d.Value.Path}, kind, n})
	}
	return parts, bytes
}

// runnable returns the weights whose operators on codes the engine has. The others compute in float.
func (d *dynamic) runnable(all []weights) (runs []weights, err error) {
	if !d.all.Engine().IsGo() {
		return all, nil
	}
	var lacks []weights
	for _, w := range all {
		switch w.kind {
		case discover.Attention, discover.Embedding:
			lacks = append(lacks, w)
		default:
			runs = append(runs, w)
		}
	}
	if len(lacks) > 0 {
		d.fit.Warnings = append(d.fit.Warnings, fmt.Sprintf("%s in float, such as %s: pure Go has no %s; ONNX Runtime measures them",
			english.Plural(len(lacks), "operator computes", "operators compute"), msg.Quote(lacks[0].paths[0]), lacks[0].kind))
	}
	return runs, decodeParts(&d.fit.Options, lacks, allOf(len(lacks)))
}

// decodeParts has the operators of some parts compute in float.
func decodeParts(o *onnxq.Options, parts []weights, list []int) error {
	var names []string
	for _, i := range list {
		names = append(names, parts[i].paths...)
	}
	return decodeWeights(o, names, nil)
}

// The effort of measuring by conversions: these blocks up to bigWeights bytes of float weights, fewer above.
const (
	bigWeights        = 256 << 20
	leastBlocks       = 2 * firstBlocks
	conversionSamples = 4
)

func blocksFor(bytes int64) int {
	return max(leastBlocks, int(int64(maxBlocks)*bigWeights/max(bytes, bigWeights)))
}

// conversions measures parts by conversions in which all others compute in float. The damage that is left without any part
// in codes, of weights alone, does not count.
func (x *mix) conversions(ctx context.Context, given onnxq.Options, blocks int) (*measure, error) {
	damage := func(ctx context.Context, s samples, on func(i int) bool) (float64, error) {
		options := given
		if err := x.leave(&options, slices.DeleteFunc(x.all(), on)); err != nil {
			return 0, err
		}
		var got float64
		err := x.converted(ctx, x.model, options, func(path string) (err error) {
			got, err = x.damageOfFile(ctx, path, s)
			if _, failed := errors.AsType[defect](err); failed {
				got, err = math.MaxFloat64, nil
			}
			return err
		})
		return got, err
	}
	base := -1.0
	above := func(ctx context.Context, s samples, on func(i int) bool) (_ float64, err error) {
		if base < 0 {
			if base, err = damage(ctx, s, func(int) bool { return false }); err != nil {
				return 0, err
			}
		}
		got, err := damage(ctx, s, on)
		return max(got-base, 0), err
	}
	return &measure{above, func() {}, blocks, conversionSamples}, nil
}

// damageOfFile runs the model at path on samples.
func (x *mix) damageOfFile(ctx context.Context, path string, s samples) (float64, error) {
	session, err := x.engine.Open(ctx, path)
	if err != nil {
		return 0, asDefect(ctx, err)
	}
	defer session.Close()
	return x.damageOn(ctx, session, s)
}
