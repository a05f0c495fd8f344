package sensitivity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// leaveFloat finds the activations that stay in float.
func (s *Sensitivity) leaveFloat(ctx context.Context, m *onnxq.Model, f *StaticFit) error {
	p, err := m.Plan(f.Options)
	if err != nil {
		return err
	}
	groups := groupsOf(p.Stages().Static())
	f.Of = len(groups)
	if f.All, err = s.damageOfOutput(ctx, m, f.Options); err != nil {
		return err
	}
	if f.Damage = f.All; f.Damage <= f.Limit || len(groups) == 0 {
		return nil
	}
	if err := s.weightsAlone(ctx, m, f, groups); err != nil {
		return err
	}
	if f.All <= f.Limit {
		return nil
	}
	path, remove, err := switched(ctx, s.model, groups)
	if err != nil {
		return err
	}
	defer remove()
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return err
	}
	defer session.Close()
	t := &trials{s: s, session: session, groups: groups}
	order, err := t.order(ctx)
	if err != nil {
		return err
	}
	return s.enough(ctx, m, f, groups, order)
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
	if f.Weights, err = s.damageOfOutput(ctx, m, options); err == nil && f.implied {
		f.Limit = max(f.Limit, aboveWeights*f.Weights)
	}
	return err
}

// aboveWeights is how many times the damage of the weights the default limit is at least.
const aboveWeights = 8

// trials are runs in which some activations are quantized.
type trials struct {
	s       *Sensitivity
	session execute.Session
	groups  []*group
}

// damage runs samples.
func (t *trials) damage(ctx context.Context, x samples, on func(i int) bool) (float64, error) {
	more := switches(t.groups, on)
	got := make([][]*execute.Tensor, len(x.inputs))
	for i, inputs := range x.inputs {
		var err error
		if got[i], err = t.session.Run(append(slices.Clone(inputs), more...), t.s.names()...); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return 0, err
		}
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
)

// order returns blocks of groups by the damage that each does alone, a group on average, the worst first. The worst block
// is divided again and again, so that few runs find the worst groups.
func (t *trials) order(ctx context.Context) ([]block, error) {
	n, measured := min(fewSamples, len(t.s.weighed.inputs)), 0
	x := samples{t.s.weighed.inputs[:n], t.s.weighed.want[:n]}
	var blocks []block
	add := func(groups []int) error {
		damage, err := t.damage(ctx, x, func(i int) bool { return slices.Contains(groups, i) })
		blocks = append(blocks, block{groups, damage})
		if measured++; t.s.opts.Progress != nil {
			t.s.opts.Progress("measuring activations", min(measured, maxBlocks), maxBlocks)
		}
		return err
	}
	all := make([]int, len(t.groups))
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
		damage, err := s.damageOfOutput(ctx, m, options)
		ok := err == nil && damage <= f.Limit
		if ok || n == len(order) {
			f.Options, f.Damage, f.Float = options, damage, names(groups, floatIn(order[:n]))
		}
		return ok, err
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

// damageOfOutput converts a model and runs the result as users do.
func (s *Sensitivity) damageOfOutput(ctx context.Context, m *onnxq.Model, o onnxq.Options) (float64, error) {
	folder, err := os.MkdirTemp("", "onnxquant-sensitivity-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	o.Progress, o.Try, o.Strict, o.MinCoverage, o.NoVerify = nil, nil, false, 0, true
	p, err := m.Plan(o)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(folder, "out.onnx")
	if _, err = p.Convert(ctx, path); err != nil {
		return 0, err
	}
	session, err := s.engine.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	got := make([][]*execute.Tensor, len(s.others.inputs))
	for i, inputs := range s.others.inputs {
		if got[i], err = session.Run(inputs, s.names()...); err != nil {
			return 0, err
		}
	}
	return s.damage(s.others.want, got), nil
}

// keepFloat changes options so that some groups stay in float. The weights of their operators get codes
// that are decoded, in blocks of 32.
func keepFloat(x *graph.Graph, o *onnxq.Options, groups []*group, float []int) error {
	ranges := *o.Ranges
	ranges.NoRange = maps.Clone(ranges.NoRange)
	if ranges.NoRange == nil {
		ranges.NoRange = map[string]bool{}
	}
	entries := slices.Clone(o.Precision.Entries())
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
	for w := range seen {
		if w != nil && w.Tensor != nil && len(w.Tensor.GetDims()) > 1 {
			override := spec.Candidate{Format: spec.Int8, Block: 32}.Override()
			entries = append(entries, rules.PrecisionEntry{Pattern: rules.PatternOf(w.Name), Override: override})
		}
	}
	slices.SortStableFunc(entries[len(o.Precision.Entries()):], func(a, b rules.PrecisionEntry) int { return cmp.Compare(a.Pattern, b.Pattern) })
	precision, err := rules.NewPrecision(entries...)
	if err != nil {
		return fmt.Errorf("formats of weights: %w", err)
	}
	o.Ranges = &ranges
	if len(entries) > 0 {
		o.Precision = precision
	}
	return nil
}

func names(groups []*group, of []int) (all []string) {
	for _, i := range of {
		all = append(all, groups[i].own.Value.Path)
	}
	return all
}
