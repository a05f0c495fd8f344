package sensitivity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/graph"
	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
)

// leaveFloat finds the activations that stay in float. all is the loss with all of them in codes.
func (s *Sensitivity) leaveFloat(ctx context.Context, m *onnxq.Model, f *StaticFit, all onnxq.OutputLoss) error {
	p, err := m.Plan(f.Options)
	if err != nil {
		return err
	}
	groups := groupsOf(p.Stages().Static())
	f.Of = len(groups)
	for _, v := range p.Stages().Static().Coarse {
		f.Coarse = append(f.Coarse, v.Path)
	}
	f.All = all
	if !f.Limits.given() && !slices.ContainsFunc(s.outputs, func(o output) bool { return o.kind != numbers }) {
		f.Limit = DefaultNumbersLimit
	}
	if err := f.Limits.Measurable(f.All); err != nil {
		return err
	}
	if f.settle(f.All); f.Met || len(groups) == 0 {
		return f.unmet()
	}
	if err := s.weightsAlone(ctx, m, f, groups); err != nil {
		return err
	}
	if f.settle(f.All); f.Met {
		return nil
	}
	board, path, remove, err := switched(ctx, m.Graph(), groups)
	if err != nil {
		return err
	}
	defer remove()
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return err
	}
	t := &trials{s, session, board}
	order, err := t.order(ctx)
	session.Close() // its process takes memory
	if err != nil {
		return err
	}
	if err := s.enough(ctx, m, f, groups, order); err != nil {
		return err
	}
	if f.Loss.Damage == math.MaxFloat64 && s.failed != nil {
		return s.failed
	}
	return f.unmet()
}

// settle notes the loss of the output.
func (f *StaticFit) settle(x onnxq.OutputLoss) {
	f.Loss, f.Met = x, x.Damage <= f.Limit
	if f.Limits.given() {
		f.Met = f.Limits.hold(x)
	}
}

// unmet returns an error if limits of the user do not hold, and no fallback is allowed.
func (f *StaticFit) unmet() error {
	if f.Met || !f.Limits.given() {
		return nil
	}
	reached := f.Limits.Broken(f.Loss)
	if f.Options.AllowFallback {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the limits do not hold: OUT has %s, with %s in float", reached, english.Plural(len(f.Float), "activation", "")))
		return nil
	}
	return fmt.Errorf("%w: the best has %s, with %d of %s in float; --allow-fallback writes it", ErrLimit, reached, len(f.Float), english.Plural(f.Of, "activation", ""))
}

// weightsAlone measures the damage of the weights, and raises the default limit to what is well above it: floats
// of activations cannot undo that damage.
func (s *Sensitivity) weightsAlone(ctx context.Context, m *onnxq.Model, f *StaticFit, groups []*group) (err error) {
	all := make([]int, len(groups))
	for i := range all {
		all[i] = i
	}
	options := f.Options
	if err := keepFloat(m.Graph(), &options, groups, all); err != nil {
		return err
	}
	if f.Weights, err = s.lossOfOutput(ctx, m, options); err == nil && !f.Limits.given() {
		w := f.Weights.Damage
		f.Limit = max(f.Limit, min(aboveWeights*w, w+aboveLimit*f.Limit))
	}
	return err
}

// The default limit is at least aboveWeights times the damage of the weights, but not more than aboveLimit limits above it: where
// codes for weights do much damage, the data are hard, and as much again for each activation would be a collapse.
const (
	aboveWeights = 8
	aboveLimit   = 15
)

// trials are runs in which some activations are quantized.
type trials struct {
	s       *Sensitivity
	session execute.Session
	board   *switchboard
}

// damage runs samples.
func (t *trials) damage(ctx context.Context, x samples, on func(i int) bool) (float64, error) {
	got, err := t.s.runs(ctx, t.session, x, t.board.inputs(on)...)
	if err != nil {
		return 0, err
	}
	return t.s.damage(x.want, got), nil
}

// block is a list of groups that follow each other in the model, and the damage that they do alone.
type block struct {
	groups []int
	damage float64
}

// The effort of order: blocks at first, blocks that are measured in all, samples for each.
const (
	firstBlocks = 12
	maxBlocks   = 64
	fewSamples  = 2
	shortChain  = 16 // runs of models with states
)

// order returns blocks of groups by the damage that each does alone, a group on average, the worst first. The worst block
// is divided again and again, so that few runs find the worst groups.
func (t *trials) order(ctx context.Context) ([]block, error) {
	n, measured := min(fewSamples, len(t.s.weighed.inputs)), 0
	x := samples{inputs: t.s.weighed.inputs[:n], want: t.s.weighed.want[:n]}
	if n = min(shortChain, len(t.s.chain.inputs)); n > 0 {
		x = samples{t.s.chain.inputs[:n], t.s.chain.want[:n], true}
	}
	var blocks []block
	add := func(groups []int) error {
		damage, err := t.damage(ctx, x, func(i int) bool { return slices.Contains(groups, i) })
		blocks = append(blocks, block{groups, damage})
		if measured++; t.s.opts.Progress != nil {
			t.s.opts.Progress("measuring activations", min(measured, maxBlocks), maxBlocks)
		}
		return err
	}
	all := make([]int, len(t.board.groups))
	for i := range all {
		all[i] = i
	}
	for part := range slices.Chunk(all, (len(all)+firstBlocks-1)/firstBlocks) {
		if err := add(part); err != nil {
			return nil, err
		}
	}
	worstFirst := func(a, b block) int { return cmp.Compare(b.damage, a.damage) }
	for measured < maxBlocks {
		slices.SortStableFunc(blocks, worstFirst)
		i := slices.IndexFunc(blocks, func(b block) bool { return len(b.groups) > 1 })
		if i < 0 {
			break
		}
		groups := blocks[i].groups
		blocks = slices.Delete(blocks, i, i+1)
		if err := cmp.Or(add(groups[:len(groups)/2]), add(groups[len(groups)/2:])); err != nil {
			return nil, err
		}
	}
	mean := func(b block) float64 { return b.damage / float64(len(b.groups)) }
	slices.SortStableFunc(blocks, func(a, b block) int { return cmp.Compare(mean(b), mean(a)) })
	return blocks, nil
}

// floatIn lists the groups of blocks.
func floatIn(blocks []block) (all []int) {
	for _, b := range blocks {
		all = append(all, b.groups...)
	}
	return all
}

// enough finds how many of the worst blocks must stay in float to hold the limit. It converts the model
// with each number that it tries: operators beside those blocks compute in float, too.
func (s *Sensitivity) enough(ctx context.Context, m *onnxq.Model, f *StaticFit, groups []*group, order []block) error {
	given := f.Options
	holds := func(n int) (bool, error) {
		options := given
		if err := keepFloat(m.Graph(), &options, groups, floatIn(order[:n])); err != nil {
			return false, err
		}
		loss, err := s.lossOfOutput(ctx, m, options)
		if err != nil {
			return false, err
		}
		tried := StaticFit{Limits: f.Limits, StaticActivations: onnxq.StaticActivations{Limit: f.Limit}}
		if tried.settle(loss); tried.Met || n == len(order) {
			f.Options, f.Float = options, names(groups, floatIn(order[:n]))
			f.settle(loss)
		}
		return tried.Met, nil
	}
	fails, n := 0, 1
	for n < len(order) {
		ok, err := holds(n)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		fails, n = n, min(2*n, len(order))
	}
	if n == len(order) {
		if _, err := holds(n); err != nil {
			return err
		}
	}
	for n-fails > 1 {
		middle := (n + fails) / 2
		switch ok, err := holds(middle); {
		case err != nil:
			return err
		case ok:
			n = middle
		default:
			fails = middle
		}
	}
	return nil
}

// lossOfOutput converts a model and runs the result as users do. If the result does not run, its damage is infinite.
func (s *Sensitivity) lossOfOutput(ctx context.Context, m *onnxq.Model, o onnxq.Options) (x onnxq.OutputLoss, err error) {
	folder, err := os.MkdirTemp("", "onnxquant-sensitivity-")
	if err != nil {
		return x, err
	}
	defer os.RemoveAll(folder)
	o.Progress, o.Try, o.Strict, o.MinCoverage, o.NoVerify = nil, nil, false, 0, true
	p, err := m.Plan(o)
	if err != nil {
		return x, err
	}
	path := filepath.Join(folder, "out.onnx")
	if _, err = p.Convert(ctx, path); err != nil {
		return x, err
	}
	x, err = s.lossOf(ctx, path)
	switch {
	case ctx.Err() != nil:
		return x, context.Cause(ctx)
	case err != nil: // a defect of the runtime
		s.failed = err
		return onnxq.OutputLoss{Damage: math.MaxFloat64, KL: new(math.MaxFloat64), SQNR: new(-math.MaxFloat64), Drop: new(1.0)}, nil
	}
	return x, nil
}

// lossOf runs the model at path on the held-out samples, and on those of the chain.
func (s *Sensitivity) lossOf(ctx context.Context, path string) (x onnxq.OutputLoss, err error) {
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return x, err
	}
	defer session.Close()
	got, err := s.runs(ctx, session, s.others)
	if err != nil {
		return x, err
	}
	x = s.loss(s.others.want, got)
	if len(s.chain.inputs) == 0 {
		return x, nil
	}
	if got, err = s.runs(ctx, session, s.chain); err != nil {
		return x, err
	}
	return worse(x, s.loss(s.chain.want, got)), nil
}

// keepFloat changes options so that some groups stay in float. The weights of their operators get codes
// that are decoded, in blocks of 32.
func keepFloat(x *graph.Graph, o *onnxq.Options, groups []*group, float []int) error {
	ranges := *o.Ranges
	ranges.NoRange = maps.Clone(ranges.NoRange)
	if ranges.NoRange == nil {
		ranges.NoRange = map[string]bool{}
	}
	seen := map[*graph.Value]bool{}
	for _, i := range float {
		for _, t := range groups[i].all {
			ranges.NoRange[t.Value.Path] = true
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
	o.Ranges = &ranges
	return decodeWeights(o, weights, multiplied)
}

func names(groups []*group, of []int) (all []string) {
	for _, i := range of {
		all = append(all, groups[i].own.Value.Path)
	}
	return all
}
