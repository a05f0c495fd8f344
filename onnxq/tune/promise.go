package tune

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// prior is a first guess of the loss that the goal allows, and its uncertainty.
func (s *search) prior() (loss, spread float64) {
	switch g := s.goal; {
	case s.result.Float.Loss == nil || s.result.Float.Score != nil:
		return 0.01, 2.5 // squared errors of weights, or losses for a score
	case g.MaxKL != nil:
		return *g.MaxKL, 0.25
	case g.MinSQNR != nil:
		return math.Pow(10, -*g.MinSQNR/10), 0.25
	case g.MaxDrop != nil:
		return 0.2 * g.MaxDrop.Amount, 1.5
	}
	return 0.01, 2.5
}

// worthwhile reports whether the expected gain of a candidate is worth its time: to double the time of the search must
// promise 20 %.
func (s *search) worthwhile(c *candidate) bool {
	const least, doubled = 0.004, 0.2
	enough := least
	if len(s.trials) > 0 {
		enough = max(least, doubled*s.cost(c)/s.passed())
	}
	return s.promise(c).value >= enough
}

// passed is the time of the search or, if that is more, a time that does not matter beside trying by hand.
func (s *search) passed() float64 {
	const nothing, conversions, weighed = 2, 12, 6
	if s.watches() {
		return max(s.spent, nothing, conversions*s.unit())
	}
	sum := float64(weighed)
	for _, t := range s.trials {
		sum += t.candidate.cost
	}
	return sum
}

// watches reports whether trials cost what they took. A program of the user may take any time, and a goal of time needs measured ones.
// Else the costs are those of the plan, so that a search repeats its result.
func (s *search) watches() bool {
	return s.opts.Score != nil || s.opts.Judge != nil || s.goal.needsTime()
}

// probe puts a candidate first if nothing is worthwhile by estimates that no trial has tested: of a family without a trial,
// the one that promises most. The gain must be large, and the time less than what was spent.
func (s *search) probe() bool {
	const gain, plausible, share = 0.1, 0.0005, 0.75 // estimates of a family may all be off by a factor of 30
	tested := map[string]bool{}
	for _, t := range s.trials {
		tested[t.candidate.family()] = true
	}
	at, most := -1, 0.0
	for i, c := range s.untried {
		p, cost := s.promise(c), s.cost(c)
		if !tested[c.family()] && p.gain >= gain && p.chance >= plausible && cost <= share*s.passed() && rate(p, cost) > most {
			at, most = i, rate(p, cost)
		}
	}
	if at > 0 {
		c := s.untried[at]
		s.untried = slices.Insert(slices.Delete(s.untried, at, at+1), 0, c)
	}
	return at >= 0
}

// rank sorts the candidates: what promises most for its cost first.
func (s *search) rank() {
	rank := map[*candidate]float64{}
	for _, c := range s.untried {
		if rank[c] = rate(s.promise(c), s.cost(c)); !s.worthwhile(c) {
			rank[c] -= 1000 // behind all others
		}
	}
	slices.SortStableFunc(s.untried, func(a, b *candidate) int { return cmp.Compare(rank[b], rank[a]) })
}

// rate is what is expected for a cost.
func rate(p promise, cost float64) float64 { return p.value / math.Sqrt(cost) }

// cost is the time that a candidate may take: in conversions by rounding to nearest, or in seconds if costs are
// measured and there was a trial.
func (s *search) cost(c *candidate) float64 {
	if !s.watches() {
		return c.cost
	}
	if took := s.took[c.class]; len(took) > 0 {
		return max(mean(took), 0.05)
	}
	if len(s.units) > 0 {
		return max(c.cost*s.unit(), 0.05)
	}
	return c.cost
}

// unit is the time of a conversion by rounding to nearest. The machine may be busy at times, so the shortest counts.
func (s *search) unit() float64 {
	if len(s.units) == 0 {
		return 0
	}
	return slices.Min(s.units)
}

// promise is what is expected of a candidate.
type promise struct {
	loss   float64
	chance float64 // that it reaches the goal
	gain   float64 // as a share, if it does
	value  float64 // the chance, times the gain
}

func (s *search) promise(c *candidate) (p promise) {
	loss, spread := s.estimate(c)
	p.loss, p.chance = loss, 1
	if s.goal.limited() {
		p.chance = s.belief.chance(loss, spread)
		if c.limited {
			p.chance = max(p.chance, 0.6) // its conversion holds the limits, on other samples
		}
		p.chance *= s.trust[c.kin()].factor()
		p.chance *= normal((logOf(s.severe(c)) - logOf(loss)) / spread)
	}
	if s.goal.MaxSize > 0 && c.bytes > s.goal.MaxSize {
		p.chance = 0
	}
	ratio, off := s.speed(c)
	if most := s.slowest(); most > 0 {
		p.chance *= normal((math.Log(most) - math.Log(ratio)) / off)
	}
	best := s.best()
	switch s.goal.Objective {
	case Smallest:
		least := float64(s.size)
		if best != nil {
			least = float64(best.Bytes)
		}
		p.gain = max(least-float64(c.bytes), 0) / least
	case Fastest:
		least := 1.0
		if best != nil {
			least = best.Time.Ratio
		}
		p.gain = gain(least, ratio, off)
	case Best:
		if p.gain = 1; best != nil {
			p.gain = gain(best.loss, loss, spread)
		}
	}
	p.value = p.gain * p.chance
	return p
}

// gain is the expected gain over least, as a share, of a value that is about x.
func gain(least, x, spread float64) (sum float64) {
	if least <= 0 {
		return 0
	}
	for _, z := range []float64{-1.38, -0.67, -0.21, 0.21, 0.67, 1.38} { // of a normal distribution
		sum += max(1-x*math.Exp(z*spread)/least, 0) / 6
	}
	return sum
}

// estimate is the loss of a candidate as it is expected by now, and the uncertainty of its logarithm.
func (s *search) estimate(c *candidate) (loss, spread float64) {
	off, spread := s.errors.of(c)
	return math.Max(c.noise, 1e-12) * math.Exp(off), max(spread, exact)
}

// ratios are first guesses of the time of a run, over that of the float model.
var ratios = map[string]float64{"float16": 1.4, "weights": 0.95, "mix": 0.95, "dynamic": 0.75, "static": 0.7}

// speed is the time of a run of a candidate over that of the float model, and the uncertainty of its logarithm.
func (s *search) speed(c *candidate) (ratio, spread float64) {
	var seen []float64
	for _, t := range s.trials {
		if t.Time != nil && t.candidate.speed == c.speed {
			seen = append(seen, math.Log(max(t.Time.Ratio, 1e-3)))
		}
	}
	if len(seen) > 0 {
		return math.Exp(mean(seen)), 0.12
	}
	word, rest, _ := strings.Cut(c.speed, " ")
	ratio = cmp.Or(ratios[word], 1)
	if strings.HasSuffix(rest, "float16") {
		ratio *= ratios["float16"]
	}
	return ratio, 0.5
}

// slowest is the largest ratio of time that the goal allows; 0: any.
func (s *search) slowest() float64 {
	most := s.goal.MaxSlowdown
	for _, t := range s.trials {
		if s.goal.MaxLatency > 0 && t.Time != nil && t.Time.P50 > 0 {
			byLatency := s.goal.MaxLatency.Seconds() * 1000 / t.Time.P50 * t.Time.Ratio
			if most == 0 || byLatency < most {
				most = byLatency
			}
			break
		}
	}
	return most
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
