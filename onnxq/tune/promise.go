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
// promise 15 %.
func (s *search) worthwhile(c *candidate) bool {
	const least, doubled = 0.004, 0.15
	enough := least
	if len(s.trials) > 0 {
		enough = max(least, doubled*s.cost(c)/s.spent)
	}
	return s.promise(c).value >= enough
}

// rank sorts the candidates: what promises most for its cost first.
func (s *search) rank() {
	rank := map[*candidate]float64{}
	for _, c := range s.untried {
		if rank[c] = s.promise(c).value / math.Sqrt(s.cost(c)); !s.worthwhile(c) {
			rank[c] -= 1000 // behind all others
		}
	}
	slices.SortStableFunc(s.untried, func(a, b *candidate) int { return cmp.Compare(rank[b], rank[a]) })
}

// cost is the time that a candidate may take, in seconds, or in units before the first trial.
func (s *search) cost(c *candidate) float64 {
	if took := s.took[c.class]; len(took) > 0 {
		return max(mean(took), 0.05)
	}
	if len(s.units) > 0 {
		return max(c.cost*mean(s.units), 0.05)
	}
	return c.cost
}

// promise is what is expected of a candidate.
type promise struct {
	loss   float64
	chance float64 // that it reaches the goal
	value  float64 // the chance, times the gain as a share
}

func (s *search) promise(c *candidate) (p promise) {
	loss, spread := s.estimate(c)
	p.loss, p.chance = loss, 1
	if s.goal.limited() {
		p.chance = s.belief.chance(loss, spread)
		if c.limited {
			p.chance = max(p.chance, 0.6) // its conversion holds the limits, on other samples
		}
		p.chance *= s.trust[c.kind].factor()
		if severe, refused := s.severe[c.kind]; refused {
			p.chance *= normal((logOf(severe) - logOf(loss)) / spread)
		}
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
		least := float64(s.model.Size())
		if best != nil {
			least = float64(best.Bytes)
		}
		p.value = max(least-float64(c.bytes), 0) / least
	case Fastest:
		least := 1.0
		if best != nil {
			least = best.Time.Ratio
		}
		p.value = gain(least, ratio, off)
	case Best:
		if p.value = 1; best != nil {
			p.value = gain(best.loss, loss, spread)
		}
	}
	p.value *= p.chance
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

// estimate is the loss of a candidate as it is expected by now, and the uncertainty of its logarithm. What was measured of
// the same class counts most, then that of the same algorithm, then all.
func (s *search) estimate(c *candidate) (loss, spread float64) {
	off := 0.0
	for _, group := range []struct {
		name  string
		prior float64
	}{{"", 1}, {c.group(), 1}, {c.class, 0.5}} {
		if seen := s.off[group.name]; len(seen) > 0 {
			n := float64(len(seen))
			off = (mean(seen)*n + off*group.prior) / (n + group.prior)
		}
	}
	switch {
	case len(s.off[c.class]) > 0:
		spread = max(c.spread/2, 0.3)
	case len(s.off[c.group()]) > 0:
		spread = max(c.spread/1.5, 0.4)
	default:
		spread = c.spread
	}
	return math.Max(c.noise, 1e-12) * math.Exp(off), spread
}

// ratios are first guesses of the time of a run, over that of the float model.
var ratios = map[string]float64{"float16": 1.4, "weights": 0.95, "mix": 0.95, "dynamic": 0.75, "static": 0.7}

// speed is the time of a run of a candidate over that of the float model, and the uncertainty of its logarithm.
func (s *search) speed(c *candidate) (ratio, spread float64) {
	if seen := s.speeds[c.speed]; len(seen) > 0 {
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

// An estimate is corrected within these bounds. The lower one is near: where few samples show no loss, others do.
const leastOff, mostOff = -1.5, 4

// trust compares what was promised of the candidates of a kind with what came of them.
type trust struct{ promised, reached float64 }

// factor lowers the chances of a kind that promised more than it kept.
func (t trust) factor() float64 { return min((1+t.reached)/(1+t.promised), 1) }

// learn notes the loss of a trial, and whether the goal allows it.
func (s *search) learn(t *Trial, reached bool) {
	c := t.candidate
	kept := s.trust[t.Kind]
	if kept.promised += t.Chance; reached {
		kept.reached++
	}
	s.trust[t.Kind] = kept
	if t.Quality.Loss != nil && s.outputs != nil {
		off := min(max(logOf(t.Quality.Loss.Damage)-logOf(c.noise), leastOff), mostOff)
		for _, name := range []string{"", c.group(), c.class} {
			s.off[name] = append(s.off[name], off)
		}
		s.belief.saw(t.Quality.Loss.Damage, 0.15, reached)
		return
	}
	loss, spread := s.estimate(c)
	s.belief.saw(loss, spread, reached)
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
