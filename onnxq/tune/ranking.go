package tune

import (
	"cmp"
	"math"
	"slices"
)

// best is the trial that reaches the goal with the least value.
func (s *search) best() *Trial {
	list := s.ranked()
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// finalist is the one of a list, the best first, that the final samples judge next: the best one; after refusals that which promises most on other
// samples, and at last the safest.
func (s *search) finalist(list []*Trial) *Trial {
	if len(list) == 0 {
		return nil
	}
	if s.result.Judged < finalists-2 {
		return list[0]
	}
	promised, worst := map[*Trial]float64{}, max(s.goal.value(list[len(list)-1]), 1e-12)
	for _, t := range list {
		promised[t] = s.chanceOnFinal(t.candidate)
		if s.result.Judged < finalists-1 {
			promised[t] *= 1 - s.goal.value(t)/worst/2 // a miss counts more than a gain
		}
	}
	return slices.MaxFunc(list, func(a, b *Trial) int { return cmp.Compare(promised[a], promised[b]) })
}

// chanceOnFinal is the chance that a candidate reaches the goal on other samples than those that choose.
func (s *search) chanceOnFinal(c *candidate) float64 {
	loss, spread := s.estimate(c)
	return s.belief.chance(loss, math.Hypot(spread, s.doubt()))
}

// doubt is the standard deviation of the logarithm of a loss between samples that choose and others.
func (s *search) doubt() float64 {
	if s.outputs == nil {
		return exact
	}
	return math.Hypot(exact, s.outputs.doubt)
}

// severity is what a candidate is expected to lose on any samples. Few samples may show less for it than for a finer one.
func (s *search) severity(c *candidate) float64 {
	loss, _ := s.estimate(c)
	return loss
}

// severe is the severity from which candidates like one do not count, for the final samples refused another: most of its severity.
func (s *search) severe(like *candidate) float64 {
	const most = 0.7
	least := math.Inf(1)
	for _, c := range s.refused {
		if c.kin() == like.kin() {
			least = min(least, most*s.severity(c))
		}
	}
	return least
}

// doubtful reports whether a trial loses about as much as one like it that the final samples refused.
func (s *search) doubtful(t *Trial) bool {
	return s.severity(t.candidate) >= s.severe(t.candidate)
}

// ranked lists the trials that reach the goal, the best first, without doubtful ones.
func (s *search) ranked() (list []*Trial) {
	for _, t := range s.trials {
		if t.Holds && !s.doubtful(t) {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *Trial) int {
		return cmp.Or(cmp.Compare(s.goal.value(a), s.goal.value(b)), cmp.Compare(a.loss, b.loss))
	})
	if s.goal.Objective == Fastest {
		preferSmall(list)
	}
	return list
}

// confirmed lists those of ranked whose time was measured again.
func (s *search) confirmed() []*Trial {
	list := slices.DeleteFunc(s.ranked(), func(t *Trial) bool { return !t.Time.Confirmed })
	preferSmall(list)
	return list
}

// preferSmall moves the smallest of the trials to the front to which none is clearly faster.
func preferSmall(list []*Trial) {
	at := -1
	for i, t := range list {
		isFast := !slices.ContainsFunc(list, func(other *Trial) bool { return faster(other, t) })
		if isFast && (at < 0 || t.Bytes < list[at].Bytes) {
			at = i
		}
	}
	if at > 0 {
		t := list[at]
		copy(list[1:at+1], list[:at])
		list[0] = t
	}
}
