package analyze

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"onnxquant/internal/knapsack"
	"onnxquant/rules"
)

// SizeError says that no mix is as small as MaxSize.
type SizeError struct {
	MaxSize int64
	Least   int64    // exact size of the smallest mix
	Mix     []string // its candidates, with how many weights have each: "12 int4:128"

	Precision *rules.Precision // that makes the smallest mix
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("no mix of these candidates has at most %d bytes: the smallest has %d, of %s", e.MaxSize, e.Least, strings.Join(e.Mix, ", "))
}

// recommend chooses a candidate for each weight and makes the precision_info.
func (a *analyzer) recommend(ctx context.Context) error {
	if a.MaxError == 0 {
		return a.leastNoise(ctx)
	}
	bytes, _ := a.classes((*Choice).noise)
	// A little less than the bound, because sums in another order may round up.
	s, _ := a.solve(bytes, a.MaxError*a.MaxError*float64(len(a.Weights))*(1-1e-9)) // always feasible: float has no noise
	if err := a.applyPick(s.Pick); err != nil {
		return err
	}
	if a.MaxSize > 0 && a.OutBytes > a.MaxSize {
		return fmt.Errorf("within an error of %v the output would have %d bytes, more than %d", a.MaxError, a.OutBytes, a.MaxSize)
	}
	a.Gap = gap(float64(a.OutBytes-a.record), a.fixedBytes()+s.Bound-float64(a.slack))
	return nil
}

// leastNoise recommends the choices with the least noise within MaxSize.
func (a *analyzer) leastNoise(ctx context.Context) error {
	_, noise := a.classes((*Choice).noise)
	pick, bound, err := a.withinSize(noise)
	if err != nil {
		return err
	}
	if a.damage != nil {
		if pick, err = a.leastDamage(ctx, pick); err != nil {
			return err
		}
	}
	sum := 0.0
	for i, choices := range noise {
		sum += choices[pick[i]].Cost
	}
	a.Gap = gap(math.Sqrt(sum), math.Sqrt(max(bound, 0))) // of the error, which noise is the square of
	return a.applyPick(pick)
}

// leastDamage compares three contenders by measuring the damage with all weights quantized at once, because
// a sum of single damages is only an estimate. The contenders are mix (the least sum), the best single
// candidate for all weights, and the mix with the least error of weights.
func (a *analyzer) leastDamage(ctx context.Context, mix []int) (best []int, err error) {
	_, noise := a.classes(func(c *Choice) float64 { return c.Error * c.Error })
	byError, _, err := a.withinSize(noise)
	if err != nil {
		return nil, err
	}
	contenders := [][]int{mix}
	for _, pick := range [][]int{a.uniform(), byError} {
		if pick != nil && !slices.ContainsFunc(contenders, func(p []int) bool { return slices.Equal(p, pick) }) {
			contenders = append(contenders, pick)
		}
	}
	if len(contenders) == 1 {
		return mix, nil
	}
	least := math.Inf(1)
	best = mix
	for _, pick := range contenders {
		if err := a.applyPick(pick); err != nil {
			return nil, err
		}
		if a.OutBytes > a.MaxSize {
			continue
		}
		opts := a.opts
		opts.Precision, opts.FloatType = a.Precision, ""
		damage, err := a.damage.Together(ctx, a.model, opts)
		if err != nil {
			return nil, err
		}
		if damage < least {
			best, least = pick, damage
		}
	}
	return best, nil
}

// uniform picks the candidate that does the least damage for all weights together, within about
// MaxSize; nil if none is that small.
func (a *analyzer) uniform() (pick []int) {
	best := -1
	for i, t := range a.Totals {
		if i > 0 && t.OutBytes <= a.MaxSize && (best < 0 || *t.Damage < *a.Totals[best].Damage) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	for _, w := range a.Weights {
		at := slices.IndexFunc(w.Choices, func(c Choice) bool { return c.Candidate == a.Candidates[best] })
		pick = append(pick, max(at, 0)) // otherwise float, the first choice
	}
	return pick
}

// mostTries bounds the plans that within makes.
const mostTries = 32

// withinSize finds the choices with the least noise within MaxSize. Sums of sizes may be too large by
// slack, or too small where weights share constants. So it begins with a capacity slightly too large,
// and lowers it while the exact plan exceeds MaxSize. No choices have less noise than bound, beside a record of
// the same size.
func (a *analyzer) withinSize(noise [][]knapsack.Choice) (pick []int, bound float64, err error) {
	record := int64(-1)
	var capacity float64
	for range mostTries {
		again := a.record > record
		if again {
			record = a.record
			capacity = float64(a.MaxSize+a.slack-record) - a.fixedBytes()
		}
		s, ok := a.solve(noise, capacity)
		if !ok {
			break
		}
		if again {
			bound = s.Bound
		}
		if err := a.applyPick(s.Pick); err != nil {
			return nil, 0, err
		}
		if a.OutBytes <= a.MaxSize {
			return s.Pick, bound, nil
		}
		// At least by what excludes these choices.
		capacity = min(capacity-float64(a.OutBytes-a.MaxSize), s.Weight-1)
	}
	pick, err = a.smallest(noise)
	return pick, bound, err
}

// smallest picks the smallest choices, if they keep to MaxSize.
func (a *analyzer) smallest(noise [][]knapsack.Choice) ([]int, error) {
	merged, of := a.merged(noise)
	pick := make([]int, len(merged))
	for i, choices := range merged {
		for j, c := range choices {
			if c.Weight < choices[pick[i]].Weight {
				pick[i] = j
			}
		}
	}
	pick = spread(pick, of)
	if err := a.applyPick(pick); err != nil {
		return nil, err
	}
	if a.OutBytes > a.MaxSize {
		return nil, &SizeError{a.MaxSize, a.OutBytes, a.mix(), a.Precision}
	}
	return pick, nil
}

// mix counts the recommended candidates, the most frequent first.
func (a *analyzer) mix() (texts []string) {
	counted := map[string]int{}
	for _, w := range a.Weights {
		counted[w.Recommended.String()]++
	}
	names := slices.SortedFunc(maps.Keys(counted), func(x, y string) int {
		return cmp.Or(cmp.Compare(counted[y], counted[x]), cmp.Compare(x, y))
	})
	for _, c := range names {
		texts = append(texts, fmt.Sprintf("%d %s", counted[c], c))
	}
	return texts
}

// applyPick recommends the picked choices and makes the plan for their exact size.
func (a *analyzer) applyPick(pick []int) (err error) {
	var noise, damage float64
	entries := make([]rules.PrecisionEntry, len(a.Weights))
	for i := range a.Weights {
		w := &a.Weights[i]
		choice := w.Choices[pick[i]]
		w.Recommended = choice.Candidate
		noise += choice.Error * choice.Error
		damage += choice.noise()
		entries[i] = rules.PrecisionEntry{Pattern: rules.PatternOf(w.Name), Override: choice.Candidate.Override()}
	}
	// Two patterns may match one weight, with and without its path. The longer one is more
	// specific, so it must come last.
	slices.SortStableFunc(entries, func(a, b rules.PrecisionEntry) int { return cmp.Compare(len(a.Pattern), len(b.Pattern)) })
	if a.Precision, err = rules.NewPrecision(entries...); err != nil {
		return err
	}
	opts := a.final
	opts.Precision, opts.AllowFallback = a.Precision, true
	p, err := a.model.Plan(opts)
	if err != nil {
		return err
	}
	if a.OutBytes, err = a.sizeOf(p.Stages()); err != nil {
		return err
	}
	a.record = p.Stages().Recorded()
	a.OpsetBefore, a.OpsetAfter, a.OpsetFor = p.OpsetBefore, p.OpsetAfter, p.OpsetFor
	a.Error = math.Sqrt(noise / float64(len(a.Weights)))
	if a.damage != nil {
		a.Analysis.Damage = &damage
	}
	return nil
}

// gap returns by what share a cost may be above the optimum.
func gap(cost, bound float64) float64 {
	if cost <= 0 || bound >= cost {
		return 0
	}
	return (cost - bound) / cost
}

// classes returns the choices of each weight twice: with bytes as costs and noise as weights, and the
// other way round.
func (a *analyzer) classes(noiseOf func(*Choice) float64) (bytes, noise [][]knapsack.Choice) {
	for _, w := range a.Weights {
		var b, n []knapsack.Choice
		for i := range w.Choices {
			c := &w.Choices[i]
			size, e := float64(w.Bytes)+c.growth, noiseOf(c)
			b = append(b, knapsack.Choice{Cost: size, Weight: e})
			n = append(n, knapsack.Choice{Cost: e, Weight: size})
		}
		bytes, noise = append(bytes, b), append(noise, n)
	}
	return bytes, noise
}
