package tune

import (
	"cmp"
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

// finalist is the trial that the final samples judge next: the best one, and as the last one that which loses least.
func (s *search) finalist() *Trial {
	list := s.ranked()
	if len(list) == 0 {
		return nil
	}
	if s.result.Judged < finalists-1 {
		return list[0]
	}
	return slices.MinFunc(list, func(a, b *Trial) int {
		return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(b.Bytes, a.Bytes))
	})
}

// severity compares trials by what is lost.
func (s *search) severity(t *Trial) float64 {
	if t.Quality.Loss != nil {
		return t.Quality.Loss.Damage
	}
	loss, _ := s.estimate(t.candidate)
	return loss
}

// doubtful reports whether a trial loses about as much as one of its kind that the final samples refused.
func (s *search) doubtful(t *Trial) bool {
	severe, refused := s.severe[t.Kind]
	return refused && s.severity(t) >= severe
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
	return list
}
