package sensitivity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/journal"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/onnxq"
)

// A mix decides which parts of a model, such as activations, compute with codes: those that do little damage.
type mix struct {
	*Sensitivity
	model    *onnxq.Model
	noun     string                                      // what a part is
	parts    []string                                    // names, in the order of the model
	leave    func(o *onnxq.Options, parts []int) error   // has parts compute in float
	widen    func(o *onnxq.Options, parts []int) error   // gives parts 16 bits, which costs less; nil: the target has none
	trials   func(ctx context.Context) (*measure, error) // measures some parts in codes
	limits   Limits
	reached  *float64       // damage of codes at run time, which includes that of weights; nil: not known
	generous bool           // more parts than the default limit needs compute in float, if few of them gain much
	options  *onnxq.Options // with all parts in codes at first
	loss     *outcome       // with the limit at first
	float    []string       // names of the parts that compute in float
	wide     []string       // names of the parts that have 16 bits
	warn     *[]string
}

// outcome is what is known of the loss of an output.
type outcome struct {
	loss, all, weights onnxq.OutputLoss // see onnxq.StaticActivations
	limit              float64
	usual              float64 // the default limit, if the damage of the weights has raised it
	met                bool
}

// limitOf is the limit at first: 0 if the user gives others.
func limitOf(given Limits) float64 {
	if given.given() {
		return 0
	}
	return DefaultLimit
}

// usualLimit is the limit without limits of the user, before the damage of the weights raises it.
func (s *Sensitivity) usualLimit() float64 {
	if slices.ContainsFunc(s.outputs, func(o output) bool { return o.kind != numbers }) {
		return DefaultLimit
	}
	return DefaultNumbersLimit
}

// A measure tells the damage of models in which only some parts have codes.
type measure struct {
	damage func(ctx context.Context, x samples, on func(i int) bool) (float64, error)
	close  func()
	blocks int // that are measured at most
	few    int // samples for each
}

// find leaves parts in float until the limits hold, and warns if they are not strict. all is the loss with all parts in codes.
func (x *mix) find(ctx context.Context, all onnxq.OutputLoss) error {
	err := x.choose(ctx, all)
	if err == nil {
		*x.warn = append(*x.warn, x.warnOfRaised()...)
	}
	return err
}

func (x *mix) choose(ctx context.Context, all onnxq.OutputLoss) error {
	l := x.loss
	l.all = all
	if !x.limits.given() {
		l.limit = x.usualLimit()
	}
	if err := x.limits.Measurable(l.all); err != nil {
		return err
	}
	if x.settle(l.all); l.met || len(x.parts) == 0 {
		return x.unmet()
	}
	if err := x.weightsAlone(ctx); err != nil {
		return err
	}
	if x.settle(l.all); l.met {
		return nil
	}
	if l.all.Damage == math.MaxFloat64 && l.weights.Damage == math.MaxFloat64 && x.failed != nil {
		return x.failed
	}
	m, err := x.trials(ctx)
	if err != nil {
		return err
	}
	order, err := x.order(ctx, m)
	m.close() // its process takes memory
	if err != nil {
		return err
	}
	if x.widen != nil {
		if x.wide, err = x.enough(ctx, order, x.widen, false); err != nil || l.met {
			return err
		}
	}
	if x.float, err = x.enough(ctx, order, x.leave, x.generous && !x.limits.given()); err != nil {
		return err
	}
	x.wide = slices.DeleteFunc(x.wide, func(name string) bool { return slices.Contains(x.float, name) })
	if l.loss.Damage == math.MaxFloat64 && x.failed != nil {
		return x.failed
	}
	return x.unmet()
}

// settle notes the loss of the output.
func (x *mix) settle(loss onnxq.OutputLoss) {
	x.loss.loss, x.loss.met = loss, x.holds(loss)
}

func (x *mix) holds(loss onnxq.OutputLoss) bool {
	if loss.Damage == math.MaxFloat64 { // the output did not run
		return false
	}
	if x.limits.given() {
		return x.limits.hold(loss)
	}
	return loss.Damage <= x.loss.limit
}

// unmet returns an error if limits of the user do not hold, and no fallback is allowed.
func (x *mix) unmet() error {
	if x.loss.met || !x.limits.given() {
		return nil
	}
	reached := x.limits.Broken(x.loss.loss)
	if x.options.AllowFallback {
		*x.warn = append(*x.warn, fmt.Sprintf("the limits do not hold: OUT has %s, with %s in float", reached, english.Plural(len(x.float), x.noun, "")))
		return nil
	}
	return fmt.Errorf("%w: the best has %s, with %d of %s in float; --allow-fallback writes it", ErrLimit, reached, len(x.float), english.Plural(len(x.parts), x.noun, ""))
}

// weightsAlone measures the damage of the weights, and raises the default limit to what is well above it: floats
// cannot undo that damage.
func (x *mix) weightsAlone(ctx context.Context) (err error) {
	options, l := *x.options, x.loss
	if err := x.leave(&options, x.all()); err != nil {
		return err
	}
	if l.weights, err = x.lossOfOutput(ctx, x.model, options); err == nil && !x.limits.given() {
		w := l.weights.Damage
		if x.reached != nil {
			w = min(w, *x.reached)
		}
		l.usual = l.limit
		l.limit = max(l.limit, min(aboveWeights*w, w+aboveLimit*l.limit))
	}
	return err
}

func (x *mix) all() []int { return allOf(len(x.parts)) }

// allOf lists the numbers below n.
func allOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// The default limit is at least aboveWeights times the damage of the weights, but not more than aboveLimit limits above it: where
// codes for weights do much damage, the data are hard, and as much again for each activation would be a collapse.
const (
	aboveWeights = 8
	aboveLimit   = 15
)

// block is a list of parts that follow each other in the model, and the damage that they do alone.
type block struct {
	parts  []int
	damage float64
}

// The effort of order: blocks at first, blocks that are measured in all, samples for each.
const (
	firstBlocks = 12
	maxBlocks   = 64
	fewSamples  = 2
	shortChain  = 16 // runs of models with states
)

// order returns blocks of parts by the damage that each does alone, a part on average, the worst first. The worst block
// is divided again and again, so that few runs find the worst parts.
func (x *mix) order(ctx context.Context, m *measure) ([]block, error) {
	some, measured := x.weighed.first(m.few), 0
	if len(x.chain.list) > 0 {
		some = x.chain.first(shortChain)
	}
	var blocks []block
	add := func(parts []int) error {
		damage, err := journal.Remember(x.journal, "damage of a block", func() (float64, error) {
			return m.damage(ctx, some, func(i int) bool { return slices.Contains(parts, i) })
		})
		blocks = append(blocks, block{parts, damage})
		if measured++; x.opts.Progress != nil {
			x.opts.Progress("measuring "+english.PluralWord(2, x.noun, ""), min(measured, m.blocks), m.blocks)
		}
		return err
	}
	for part := range slices.Chunk(x.all(), (len(x.parts)+firstBlocks-1)/firstBlocks) {
		if err := add(part); err != nil {
			return nil, err
		}
	}
	worstFirst := func(a, b block) int { return cmp.Compare(b.damage, a.damage) }
	for measured < m.blocks {
		slices.SortStableFunc(blocks, worstFirst)
		i := slices.IndexFunc(blocks, func(b block) bool { return len(b.parts) > 1 })
		if i < 0 {
			break
		}
		parts := blocks[i].parts
		blocks = slices.Delete(blocks, i, i+1)
		if err := cmp.Or(add(parts[:len(parts)/2]), add(parts[len(parts)/2:])); err != nil {
			return nil, err
		}
	}
	mean := func(b block) float64 { return b.damage / float64(len(b.parts)) }
	slices.SortStableFunc(blocks, func(a, b block) int { return cmp.Compare(mean(b), mean(a)) })
	return blocks, nil
}

// floatIn lists the parts of blocks.
func floatIn(blocks []block) (all []int) {
	for _, b := range blocks {
		all = append(all, b.parts...)
	}
	return all
}

// enough finds how many of the worst blocks must be spared to hold the limit, and returns the names of their parts. It converts
// the model with each number that it tries: operators beside those blocks are spared, too. With more, it goes on while few parts
// gain much.
func (x *mix) enough(ctx context.Context, order []block, spare func(o *onnxq.Options, parts []int) error, more bool) (spared []string, err error) {
	given := *x.options
	try := func(n int) (t trial, err error) {
		t.options, t.parts = given, floatIn(order[:n])
		if err := spare(&t.options, t.parts); err != nil {
			return t, err
		}
		t.loss, err = x.lossOfOutput(ctx, x.model, t.options)
		return t, err
	}
	take := func(t trial) {
		*x.options, spared = t.options, nil
		for _, i := range t.parts {
			spared = append(spared, x.parts[i])
		}
		x.settle(t.loss)
	}
	holds := func(n int) (bool, error) {
		t, err := try(n)
		if err != nil {
			return false, err
		}
		met := x.holds(t.loss)
		if met || n == len(order) {
			take(t)
		}
		return met, nil
	}
	n, err := leastCount(len(order), holds)
	if err == nil && n == len(order) && n > 0 {
		_, err = holds(n)
	}
	if err != nil {
		return nil, err
	}
	if !more || !x.loss.met {
		return spared, nil
	}
	for n *= 2; n <= len(order) && len(floatIn(order[:n])) <= len(x.parts)/mostMore; n *= 2 {
		t, err := try(n)
		if err != nil || t.loss.Damage > x.loss.loss.Damage*worthMore {
			return spared, err
		}
		take(t)
	}
	return spared, nil
}

// With more, twice as many blocks are spared while their parts are at most one in mostMore, and that leaves at most worthMore of
// the damage.
const (
	mostMore  = 5
	worthMore = 0.75
)

// trial is a conversion in which some parts are spared.
type trial struct {
	options onnxq.Options
	parts   []int
	loss    onnxq.OutputLoss
}

// lossOfOutput converts a model and runs the result as users do. If the result does not run, its damage is infinite.
func (s *Sensitivity) lossOfOutput(ctx context.Context, m *onnxq.Model, o onnxq.Options) (onnxq.OutputLoss, error) {
	kept, err := journal.Remember(s.journal, "loss of an output", func() (k keptLoss, err error) {
		err = s.converted(ctx, m, o, func(path string) error {
			x, err := s.lossOf(ctx, path)
			d, failed := errors.AsType[defect](err)
			if k = keepLoss(x); failed {
				k.Failed, err = d.Error(), nil
			}
			return err
		})
		return k, err
	})
	x := kept.loss()
	switch {
	case err != nil:
		return x, err
	case kept.Failed != "":
		s.failed = errors.New(kept.Failed)
		return onnxq.OutputLoss{Damage: math.MaxFloat64, KL: new(math.MaxFloat64), SQNR: new(float64(-exact)), Drop: new(1.0)}, nil
	}
	return x, nil
}

// converted converts a model to a temporary file, for a function.
func (s *Sensitivity) converted(ctx context.Context, m *onnxq.Model, o onnxq.Options, do func(path string) error) error {
	folder, err := os.MkdirTemp("", "onnxquant-sensitivity-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	o.Progress, o.Try, o.Strict, o.MinCoverage, o.NoVerify = nil, nil, false, 0, true
	p, err := m.Plan(o)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, "out.onnx")
	if _, err = p.Convert(ctx, path); err != nil {
		return err
	}
	return do(path)
}

// lossOf runs the model at path on the held-out samples, and on those of the chain.
func (s *Sensitivity) lossOf(ctx context.Context, path string) (x onnxq.OutputLoss, err error) {
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return x, asDefect(ctx, err)
	}
	defer session.Close()
	if x, err = s.lossOn(ctx, session, s.others); err != nil || len(s.chain.list) == 0 {
		return x, err
	}
	chain, err := s.lossOn(ctx, session, s.chain)
	return worse(x, chain), err
}

// defect is an error of the runtime with a model: it cannot open or run it.
type defect struct{ error }

func (d defect) Unwrap() error { return d.error }

// asDefect returns an error of opening or running a model as a defect. What was stopped or killed has none.
func asDefect(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ort.ErrKilled):
		return err
	}
	return defect{err}
}
