package tune

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// tryAll makes and judges candidates at the same time, then measures their time one after the other. Where one ends the
// search, those that are finished still count.
func (s *search) tryAll(ctx context.Context, batch []*candidate) error {
	tried, failed := make([]*Trial, len(batch)), make([]error, len(batch))
	var wait sync.WaitGroup
	for i, c := range batch {
		wait.Go(func() { tried[i], failed[i] = s.try(ctx, c) })
	}
	wait.Wait()
	var ended error
	for i, t := range tried {
		err := failed[i]
		if err == nil {
			err = s.settle(ctx, t)
		}
		if err != nil && (ended == nil || s.stopped(ctx, ended)) {
			ended = err
		}
	}
	switch {
	case ended == nil:
		return s.tidy()
	case s.stopped(ctx, ended):
		return nil
	}
	return ended
}

// stopped reports whether an error comes from the end of the context or of the budget.
func (s *search) stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errBudget)
}

var errBudget = errors.New("the time is over")

// within returns a context that ends with the budget.
func (s *search) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.end.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, s.end, errBudget)
}

// try makes and judges a candidate. Its failure is part of the trial; an error is one of the search.
func (s *search) try(ctx context.Context, c *candidate) (*Trial, error) {
	p := s.promise(c)
	t := &Trial{Flags: c.flags, Label: c.label, Kind: c.kind, Planned: c.bytes, Estimated: p.loss, Chance: p.chance, candidate: c}
	if kept, ok := s.journal.kept(c.flags); ok {
		kept.candidate, kept.Planned, kept.Estimated, kept.Chance = c, t.Planned, t.Estimated, t.Chance
		kept.Holds, kept.Why, kept.Final, kept.Frontier = false, "", false, false
		return &kept, nil
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	start := time.Now()
	s.progress("making "+c.label, 0, 0)
	path, err := s.make(ctx, c)
	if err == nil {
		t.Bytes, err = sizeOf(path)
	}
	if err == nil && s.goal.beyond(t) == "" {
		s.progress("judging "+c.label, 0, 0)
		t.Quality, err = s.judge.Judge(ctx, path, false)
	}
	t.Seconds = time.Since(start).Seconds()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		t.Failed = err.Error()
	}
	return t, nil
}

// settle completes a trial and learns from it.
func (s *search) settle(ctx context.Context, t *Trial) error {
	c := t.candidate
	t.loss = math.Inf(1)
	if t.Failed == "" {
		t.loss = lossOf(s.result.Float, t.Quality, s.lower)
		t.Why = s.goal.beyond(t)
		if t.Why == "" {
			t.Why = s.goal.lost(s.result.Float, t.Quality, s.lower)
			s.learn(t, t.Why == "")
		}
		if t.Why == "" && s.goal.needsTime() && t.Time == nil {
			if err := s.clock(ctx, t); err != nil {
				return err
			}
			t.Why = s.goal.beyond(t)
		}
		t.Holds = t.Why == "" && t.Failed == ""
		if s.goal.Objective == Smallest && t.Bytes >= s.size && t.Holds {
			t.Holds, t.Why = false, "not smaller than IN"
		}
		if s.goal.Objective == Fastest && t.Holds && t.Time.Ratio >= 1 {
			t.slower()
		}
	} else {
		s.keep(t, false)
	}
	s.took[c.class] = append(s.took[c.class], t.Seconds)
	s.units = append(s.units, t.Seconds/c.cost)
	s.trials = append(s.trials, t)
	if t.Kept {
		s.earlier += max(t.elapsed-s.elapsed(), 0)
	} else {
		t.elapsed = s.elapsed()
		if err := s.journal.add(*t); err != nil {
			return err
		}
	}
	s.spent = t.elapsed
	if s.opts.Tried != nil {
		s.opts.Tried(*t)
	}
	return nil
}

// clock measures the time of a run.
func (s *search) clock(ctx context.Context, t *Trial) error {
	path, err := s.made(ctx, t)
	if err != nil {
		return err
	}
	s.progress("timing "+t.Label, 0, 0)
	took, err := s.timer(ctx, path, timing)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		t.Failed = err.Error()
	default:
		t.Time = took
		if t.Kept { // without a time of this machine
			return s.journal.add(*t)
		}
	}
	return nil
}

// make makes a candidate, in a folder of its own. Its file is called like the output, because files of external data are
// named after it.
func (s *search) make(ctx context.Context, c *candidate) (path string, err error) {
	path = s.place(c)
	os.RemoveAll(filepath.Dir(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	if c.mix != nil {
		if err := writePrecision(mixPath(path), c.mix); err != nil {
			return "", err
		}
	}
	return path, s.opts.Make(ctx, append([]string{"--quiet"}, arguments(c.flags, mixPath(path), s.in, path)...))
}

// made makes a candidate again if its file is not there.
func (s *search) made(ctx context.Context, t *Trial) (string, error) {
	path := s.place(t.candidate)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path, err := s.make(ctx, t.candidate)
	if err == nil { // an earlier search may have made it for an OUT whose external data had a shorter name
		t.Bytes, err = sizeOf(path)
	}
	return path, err
}

// arguments are those of the command that makes a candidate. mix is the path of its precision_info, if it has one.
func arguments(flags []string, mix, in, out string) []string {
	flags = slices.Clone(flags)
	for i, flag := range flags {
		if strings.HasPrefix(flag, mixMark) {
			flags[i] = mix
		}
	}
	return append(flags, in, out)
}

// tidy removes the files of all candidates but the two best.
func (s *search) tidy() error {
	keep := map[string]bool{}
	for i, t := range s.ranked() {
		if i < 2 {
			keep[filepath.Dir(s.place(t.candidate))] = true
		}
	}
	for _, t := range s.trials {
		if folder := filepath.Dir(s.place(t.candidate)); !keep[folder] {
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
		}
	}
	return nil
}
