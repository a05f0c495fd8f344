package analyze

import (
	"math"

	"onnxquant/internal/knapsack"
)

// mostPoints bounds the frontier.
const mostPoints = 200

// total sets the totals of each candidate.
func (a *analyzer) total() {
	for i, c := range a.Candidates {
		t := Total{Candidate: c}
		var growth, noise, damage float64
		for _, w := range a.Weights {
			for _, choice := range w.Choices {
				if choice.Candidate == c && i > 0 {
					growth += choice.growth
					noise += choice.Error * choice.Error
					damage += choice.noise()
				}
			}
		}
		if a.damage != nil {
			t.Damage = &damage
		}
		t.OutBytes, t.Error = a.FloatBytes+int64(math.Round(growth)), math.Sqrt(noise/float64(len(a.Weights)))
		a.Totals = append(a.Totals, t)
	}
}

// frontier sets Frontier and DamageFrontier, thinned evenly if they are too long.
func (a *analyzer) frontier() {
	for _, p := range a.mixes(func(c *Choice) float64 { return c.Error * c.Error }) {
		a.Frontier = append(a.Frontier, Point{int64(math.Round(p.Weight)), math.Sqrt(p.Cost / float64(len(a.Weights)))})
	}
	if a.damage == nil {
		return
	}
	for _, p := range a.mixes((*Choice).noise) {
		a.DamageFrontier = append(a.DamageFrontier, DamagePoint{int64(math.Round(p.Weight)), p.Cost})
	}
}

// mixes returns the mixes with the least noise for their size. Weight is the bytes of the output, Cost
// the noise.
func (a *analyzer) mixes(noiseOf func(*Choice) float64) (mixes []knapsack.Choice) {
	_, noise := a.classes(noiseOf)
	noise, _ = a.merged(noise)
	rest, line := a.fixedBytes(), knapsack.Frontier(noise)
	steps := len(line) - 1
	n := min(steps, mostPoints-1)
	for i := range n + 1 {
		p := line[i*steps/max(n, 1)]
		if p.Cost < line[0].Cost*1e-12 { // rounding errors remain after all noise was subtracted
			p.Cost = 0
		}
		mixes = append(mixes, knapsack.Choice{Weight: rest + p.Weight, Cost: p.Cost})
	}
	return mixes
}
