package tune

// An estimate is corrected within these bounds. The lower one is near: where few samples show no loss, others do.
const leastOff, mostOff = -1.5, 4

// trust compares what was promised of candidates that are alike with what came of them.
type trust struct{ promised, reached float64 }

// factor lowers the chances of candidates that promised more than they kept.
func (t trust) factor() float64 { return min((1+t.reached)/(1+t.promised), 1) }

// learn notes the loss of a trial, and whether the goal allows it.
func (s *search) learn(t *Trial, reached bool) {
	s.correct(t.candidate, t.Quality)
	s.judged(t, reached, exact)
}

// refuse notes that a trial misses the goal on samples where the loss may be another one.
func (s *search) refuse(t *Trial, final Quality) {
	s.refused = append(s.refused, t.candidate)
	s.correct(t.candidate, final)
	s.judged(t, false, s.doubt())
}

// correct compares a measured loss with its estimate.
func (s *search) correct(c *candidate, q Quality) {
	if q.Loss != nil && s.outputs != nil {
		s.errors.saw(c, min(max(logOf(q.Loss.Damage)-logOf(c.noise), leastOff), mostOff), s.doubt())
	}
}

// judged notes whether the goal allows the loss of a trial.
func (s *search) judged(t *Trial, reached bool, doubt float64) {
	loss, spread := s.estimate(t.candidate)
	if t.Quality.Loss != nil && s.outputs != nil {
		loss, spread = t.Quality.Loss.Damage, doubt
	}
	s.belief.saw(loss, spread, reached)
	s.keep(t, reached)
}

// keep compares what was promised of a trial with what came of it.
func (s *search) keep(t *Trial, reached bool) {
	kept := s.trust[t.candidate.kin()]
	if kept.promised += t.Chance; reached {
		kept.reached++
	}
	s.trust[t.candidate.kin()] = kept
}
