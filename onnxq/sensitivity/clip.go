package sensitivity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"onnxquant/calib"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/journal"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
)

// The effort of clip: runs of samples, samples for each, blocks at first, and the least gain that counts.
const (
	clipTrials  = 96 // a quarter of them above manyUnits, and in pure Go, which is slow
	manyUnits   = 128
	clipSamples = 4
	clipBlocks  = 8
	leastGain   = 0.005
)

// clip chooses the range of each activation by what the outputs lose. All activations have codes, and blocks of
// them get the ranges of one method after the other; a block is halved if that does not help. The ranges are
// kept if the held-out samples lose less than with minimum and maximum.
func (s *static) clip(ctx context.Context) error {
	if s.held == nil || s.fit.HeldOut == 0 || s.data.Method.Name != "" || strings.HasSuffix(string(s.fit.Options.ActivationType), "16") || fp8(s.fit.Options) {
		return nil // nothing shows a gain, or a method is given, or 16 bits and floats need no clipping
	}
	p, err := s.model.Plan(s.fit.Options)
	if err != nil {
		return err
	}
	groups := groupsOf(p.Stages().Static())
	c, err := s.clippings(ctx, groups)
	if err != nil || len(c.units) == 0 {
		return err
	}
	t, done, err := s.held.trialsOf(ctx, s.model.Graph(), groups)
	if err != nil {
		return err
	}
	defer done()
	c.trials = t
	if err := c.search(ctx); err != nil {
		return err
	}
	return s.keepClips(ctx, c)
}

// fp8 reports whether activations are floats of 8 bits, for which clipping gains nothing: small values keep their bits.
func fp8(o onnxq.Options) bool {
	return o.ActivationType == spec.ActivationsFP8 || o.Format == spec.FP8E4M3
}

// unit is a range that one or more groups have, and its candidates, as calibrate.ClippingMethods has them.
type unit struct {
	path   string
	groups []*group
	ranges []calibrate.Clipped
}

// clips is the state of clip.
type clips struct {
	*trials
	units []*unit
	all   []int   // the best method for all units
	best  []int   // the best method for each unit
	least float64 // damage of best
	tried int
}

// clippings finds the candidates. Units whose ranges hardly differ are left out.
func (s *static) clippings(ctx context.Context, groups []*group) (*clips, error) {
	byPath := map[string]*unit{}
	var names []string
	for _, g := range groups {
		if g.own.Range == nil {
			continue
		}
		path := g.own.Range.Path
		if byPath[path] == nil {
			byPath[path] = &unit{path: path}
			names = append(names, path)
		}
		byPath[path].groups = append(byPath[path].groups, g)
	}
	c := &clips{}
	if len(names) == 0 {
		return c, nil
	}
	opts := s.data
	opts.Scheme = calib.Scheme{Bits: 8, Symmetric: groups[0].own.Codes.Symmetric}
	found, err := journal.Remember(s.journal, "clipped ranges", func() (map[string][]calibrate.Clipped, error) {
		if s.clipper != nil {
			return s.clipper.Ranges(opts.Scheme, names), nil
		}
		path, remove, err := s.exposed(ctx)
		if err != nil {
			return nil, err
		}
		defer remove()
		return calibrate.Clippings(ctx, path, opts, names)
	})
	if err != nil {
		return nil, err
	}
	s.clipper = nil // it takes memory
	for _, name := range names {
		u := byPath[name]
		if u.ranges = found[name]; u.ranges == nil || u.ranges[0].Range != s.fit.Options.Ranges.Tensors[name] {
			continue // not observed, or factors of channels have changed it
		}
		whole := u.groups[0].params(u.ranges[0])
		if slices.ContainsFunc(u.ranges, func(r calibrate.Clipped) bool { return u.groups[0].params(r).Scale < 0.98*whole.Scale }) {
			c.units = append(c.units, u)
		}
	}
	return c, nil
}

func (g *group) params(r calibrate.Clipped) actpairs.Params {
	return g.own.Codes.For(float32(r.Range.Min), float32(r.Range.Max))
}

func (c *clips) mostTrials() int {
	if len(c.units) > manyUnits || c.s.engine.IsGo() {
		return clipTrials / 4
	}
	return clipTrials
}

// damageOf returns the damage with a method for each unit.
func (c *clips) damageOf(ctx context.Context, methods []int) (float64, error) {
	for i, u := range c.units {
		for _, g := range u.groups {
			g.codes = g.params(u.ranges[methods[i]])
		}
	}
	all := c.s.weighed.list
	x, n := samples{}, min(clipSamples, len(all))
	for i := range n {
		x.list = append(x.list, all[i*len(all)/n])
	}
	if c.tried++; c.s.opts.Progress != nil {
		c.s.opts.Progress("choosing ranges", min(c.tried, c.mostTrials()), c.mostTrials())
	}
	return journal.Remember(c.s.journal, "damage of ranges", func() (float64, error) {
		return c.damage(ctx, x, func(int) bool { return true })
	})
}

// try is a block of units that may get the ranges of a method.
type try struct {
	units  []int
	method int
}

// search finds the best method of each unit: first one for all, then for smaller and smaller blocks.
func (c *clips) search(ctx context.Context) error {
	var global []float64
	c.least = math.Inf(1)
	for k := range c.units[0].ranges {
		methods := slices.Repeat([]int{k}, len(c.units))
		d, err := c.damageOf(ctx, methods)
		if err != nil {
			return err
		}
		if global = append(global, d); d < c.least*(1-leastGain) {
			c.all, c.least = methods, d
		}
	}
	c.best = slices.Clone(c.all)
	order := make([]int, len(global))
	every := make([]int, len(c.units))
	for k := range order {
		order[k] = k
	}
	for i := range every {
		every[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(global[a], global[b]) })
	var queue []try
	for block := range slices.Chunk(every, (len(every)+clipBlocks-1)/clipBlocks) {
		for _, k := range order {
			queue = append(queue, try{block, k})
		}
	}
	for ; len(queue) > 0 && c.tried < c.mostTrials(); queue = queue[1:] {
		t := queue[0]
		helped, err := c.attempt(ctx, t)
		if err != nil {
			return err
		}
		if n := len(t.units); !helped && n > 1 {
			queue = append(queue, try{t.units[:n/2], t.method}, try{t.units[n/2:], t.method})
		}
	}
	return nil
}

// attempt gives a block the ranges of a method, and reports whether that helps, or changes nothing.
func (c *clips) attempt(ctx context.Context, t try) (bool, error) {
	methods, changed := slices.Clone(c.best), false
	for _, i := range t.units {
		u := c.units[i]
		changed = changed || u.ranges[methods[i]].Range != u.ranges[t.method].Range
		methods[i] = t.method
	}
	if !changed {
		return true, nil
	}
	d, err := c.damageOf(ctx, methods)
	if err != nil || d >= c.least*(1-leastGain) {
		return false, err
	}
	c.best, c.least = methods, d
	return true, nil
}

// options returns options with the ranges of methods, and how many ranges each method gives, besides minmax.
func (c *clips) options(o onnxq.Options, methods []int) (onnxq.Options, map[string]int) {
	ranges := *o.Ranges
	ranges.Tensors = maps.Clone(ranges.Tensors)
	counts := map[string]int{}
	for i, u := range c.units {
		k := methods[i]
		if u.ranges[k].Range != u.ranges[0].Range {
			ranges.Tensors[u.path] = u.ranges[k].Range
			counts[u.ranges[k].Method]++
		}
	}
	o.Ranges = &ranges
	return o, counts
}

// keepClips takes the ranges with the least damage on held-out samples: those of minimum and maximum, those of
// one method, or the chosen ones.
func (s *static) keepClips(ctx context.Context, c *clips) error {
	given := s.fit.Options
	whole, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	least := whole.Damage * (1 - leastGain)
	tried := [][]int{make([]int, len(c.units))}
	for _, methods := range [][]int{c.best, c.all} {
		if slices.ContainsFunc(tried, func(m []int) bool { return slices.Equal(m, methods) }) {
			continue
		}
		tried = append(tried, methods)
		o, counts := c.options(given, methods)
		loss, err := s.held.lossOfOutput(ctx, s.model, o)
		if err != nil {
			return err
		}
		if loss.Damage < least {
			least = loss.Damage
			s.whole = given.Ranges.Tensors
			s.fit.Options, s.fit.Clipped, s.fit.MinMax, s.loss = o, counts, &whole, &loss
			o.Ranges.Method += ", clipped"
			s.fit.Method = o.Ranges.Method
		}
	}
	return nil
}

// clipped counts the ranges of each method.
func (f *StaticFit) clipped() string {
	var parts []string
	for _, name := range calibrate.ClippingMethods() {
		if n := f.Clipped[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s", n, name))
		}
	}
	return strings.Join(parts, ", ")
}
