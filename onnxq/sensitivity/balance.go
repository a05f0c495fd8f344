package sensitivity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/calib"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/balance"
	"onnxquant/internal/equalize"
	"onnxquant/internal/graph"
	"onnxquant/internal/journal"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/rules"
)

// balance gives the channels of activations factors, if the outputs are nearer to the float model's then. The ranges are
// scaled with them.
func (s *static) balance(ctx context.Context) error {
	f := s.fit
	if f.Options.NoBalance || s.held == nil {
		return nil
	}
	b := &balancing{s: s}
	if err := b.find(ctx); err != nil || len(b.chosen) == 0 {
		return err
	}
	before, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	f.Balance.Before, f.Balance.After = &before, &before
	for n := len(b.chosen); n > 0 && f.Balance.Places == 0; n /= 4 {
		if err := b.try(ctx, b.chosen[:n]); err != nil {
			return err
		}
	}
	if f.Balance.Places > 0 {
		return s.rest(ctx) // more ranges may be too coarse for codes
	}
	return nil
}

// balancing is a search for factors.
type balancing struct {
	s       *static
	regions []balance.Region
	extents map[*graph.Value]observe.Extent
	chosen  []chosen // the one with the largest gain first
}

// chosen are factors of a region.
type chosen struct {
	region balance.Region
	equalize.Choice
}

// find chooses factors for each region by itself.
func (b *balancing) find(ctx context.Context) error {
	p, err := b.s.model.Plan(b.s.fit.Options)
	if err != nil {
		return err
	}
	codes := map[string]*actpairs.Tensor{} // by path
	for _, t := range p.Stages().Static().Tensors {
		codes[t.Value.Path] = t
	}
	var values []balance.Activation
	var list []observe.Channels
	for _, r := range balance.Regions(b.s.model.Graph()) {
		if !slices.ContainsFunc(r.Values, func(a balance.Activation) bool { return codes[a.Value.Path] != nil }) ||
			slices.ContainsFunc(r.Values, func(a balance.Activation) bool { return !b.s.model.OfFile(a.Value.Path) || !observable(a) }) {
			continue
		}
		b.regions = append(b.regions, r)
		for _, a := range r.Values {
			values = append(values, a)
			list = append(list, observe.Channels{Name: a.Value.Name, N: r.Channels, Back: a.Axis.Back, Rank: a.Rank, Spread: a.Axis.Spread})
		}
	}
	if len(b.regions) == 0 {
		return nil
	}
	b.s.fit.Balance = &onnxq.BalancedChannels{Of: len(b.regions)}
	data := calibrate.New(b.s.path, b.s.data)
	if err := data.Open(ctx); err != nil {
		return err
	}
	var progress func(done, total int)
	if b.s.data.Progress != nil {
		progress = func(done, total int) { b.s.data.Progress("balancing channels", done, total) }
	}
	all, err := journal.Remember(b.s.journal, "extents of channels", func() ([]observe.Extent, error) {
		return data.Engine().Extents(ctx, b.s.path, b.s.model.Graph().Opset, data.Samples(), list, progress)
	})
	if err != nil {
		if ctx.Err() == nil { // the conversion does without factors
			b.s.fit.Warnings = append(b.s.fit.Warnings, fmt.Sprintf("channels are not balanced: %v", err))
			b.s.fit.Balance.Failed = true
			return nil
		}
		return err
	}
	b.extents = map[*graph.Value]observe.Extent{}
	for i, a := range values {
		b.extents[a.Value] = all[i]
	}
	return b.choose(ctx, codes)
}

// observable reports whether the channels of an activation can be observed.
func observable(a balance.Activation) bool {
	if a.Axis.Spread {
		return a.Rank == 2 && a.Axis.Back == -1
	}
	return a.Rank > 0 || a.Axis.Back == -1
}

func (b *balancing) choose(ctx context.Context, codes map[string]*actpairs.Tensor) error {
	m := equalize.Model{Graph: b.s.model.Graph(), Weight: func(v *graph.Value) equalize.Weight { return codesOf(codes[v.Path]) }}
	for _, r := range b.regions {
		var acts []equalize.Activation
		for _, a := range r.Values {
			x := b.extents[a.Value]
			if !finite(x) {
				acts = nil
				break
			}
			act := equalize.Activation{Value: a.Value, Low: x.Low, High: x.High, Square: x.Square}
			if t := codes[a.Value.Path]; t != nil && t.Like == nil && t.Stored == nil {
				act.Steps = math.Exp2(float64(t.Codes.Type.Bits())) - 1
			}
			acts = append(acts, act)
		}
		if acts == nil {
			continue
		}
		c, err := equalize.Choose(ctx, m, r, acts)
		if err != nil {
			return err
		}
		if c.Exponents != nil {
			b.chosen = append(b.chosen, chosen{r, c})
		}
	}
	slices.SortStableFunc(b.chosen, func(a, b chosen) int { return cmp.Compare(a.Left, b.Left) })
	return nil
}

func finite(x observe.Extent) bool {
	for i, s := range x.Square {
		if sum := s + float64(x.High[i]) - float64(x.Low[i]); math.IsNaN(sum) || math.IsInf(sum, 0) {
			return false
		}
	}
	return true
}

// codesOf says how a stored tensor gets codes.
func codesOf(t *actpairs.Tensor) equalize.Weight {
	if t == nil || t.Stored == nil {
		return equalize.Weight{Run: 1, Count: 1}
	}
	w := equalize.Weight{Steps: math.Exp2(float64(t.Codes.Type.Bits()-1)) - 1, Run: 1, Count: 1}
	dims := t.Value.Tensor.GetDims()
	if t.Axis >= 0 {
		w.Count, dims = dims[t.Axis], dims[t.Axis+1:]
	}
	for _, d := range dims {
		w.Run *= d
	}
	return w
}

// try measures the outputs with some factors, and keeps them if they are better.
func (b *balancing) try(ctx context.Context, list []chosen) error {
	exponents := map[string][]int8{}
	options := b.s.fit.Options
	options.Ranges = options.Ranges.Clone()
	for _, c := range list {
		exponents[c.region.Name] = c.Exponents
		for _, a := range c.region.Values {
			b.scaleRange(options.Ranges, a.Value, c.Exponents)
		}
	}
	m, err := b.s.model.Balanced(exponents)
	if err != nil {
		return err
	}
	after, err := b.s.held.lossOfOutput(ctx, m, options)
	if err != nil || !(after.Damage < b.s.fit.Balance.Before.Damage) {
		return err
	}
	options.Balance = exponents
	b.s.fit.Options, b.s.model = options, m
	b.s.fit.Balance.Places, b.s.fit.Balance.After, b.s.loss = len(list), &after, &after
	return nil
}

// scaleRange sets the range of an activation with factors.
func (b *balancing) scaleRange(r *rules.Ranges, v *graph.Value, exponents []int8) {
	was, known := r.Tensors[v.Path]
	if !known {
		return
	}
	is, x := calib.Range{Min: math.Inf(1), Max: math.Inf(-1)}, b.extents[v]
	for ch, e := range exponents {
		f := balance.Factor(e)
		is.Min, is.Max = min(is.Min, float64(x.Low[ch]/f)), max(is.Max, float64(x.High[ch]/f))
	}
	r.Tensors[v.Path] = is
	if typical, ok := r.Typical[v.Path]; ok && was.Max-was.Min > 0 {
		r.Typical[v.Path] = min(typical, max(-is.Min, is.Max)/2)
	}
}

// balanceText says what factors gained.
func (f *StaticFit) balanceText() string {
	b := f.Balance
	places := english.Plural(b.Of, "place", "")
	switch {
	case b.Failed:
		return fmt.Sprintf("no factors of channels in %s: measuring the channels failed", places)
	case b.Before == nil:
		return fmt.Sprintf("no factors of channels are needed in %s", places)
	case b.Places == 0:
		return fmt.Sprintf("no factors of channels in %s: they do not lower the loss", places)
	}
	return fmt.Sprintf("factors of channels in %d of %s: damage %.2g, without them %.2g", b.Places, places, b.After.Damage, b.Before.Damage)
}

// withBalance returns the model with the factors of options.
func withBalance(m *onnxq.Model, o onnxq.Options) (*onnxq.Model, error) {
	if len(o.Balance) == 0 {
		return m, nil
	}
	return m.Balanced(maps.Clone(o.Balance))
}
