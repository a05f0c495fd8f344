package tune

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/commit"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
)

// search is the state of Search.
type search struct {
	in, out string
	opts    *Options
	goal    *Goal
	lower   bool // a lower score is better
	start   time.Time
	end     time.Time // of the budget; zero: none

	timer func(ctx context.Context, path string, limit time.Duration) (*Time, error) // see measure

	model   *onnxq.Model
	size    int64    // of it
	outputs *outputs // nil without data
	judge   Judge
	planner *planner
	journal *journal
	folder  string
	result  *Result

	earlier float64 // seconds of an earlier search
	spent   float64 // seconds until the last trial ended, so that a search that goes on decides alike

	trust   map[string]trust
	refused []*candidate // by the final samples

	resorts int // see resort
	untried []*candidate
	trials  []*Trial
	belief  *belief
	errors  surrogate
	took    map[string][]float64 // class → seconds
	units   []float64            // seconds over cost
}

// Search finds the settings for the model in, and writes what it chooses to out.
//
// When the context ends, a search that has found something ends with the best of it. If no candidate reaches the goal, the
// error wraps ErrGoal, and the result says what was tried; out is then not written, unless AllowFallback is set.
func Search(ctx context.Context, in, out string, opts Options) (*Result, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	opts.Goal.Objective = cmp.Or(opts.Goal.Objective, Smallest)
	s := &search{in: in, out: out, opts: &opts, goal: &opts.Goal, start: time.Now(),
		trust: map[string]trust{}, took: map[string][]float64{}}
	s.result = &Result{Goal: opts.Goal, Input: cmp.Or(opts.Input, in), Trials: []Trial{}, out: out}
	s.timer = s.measure
	s.lower = opts.Score != nil && opts.Score.LowerIsBetter
	if opts.Budget > 0 {
		s.end = s.start.Add(opts.Budget)
	}
	remove, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := s.plan(ctx); err != nil {
		return nil, err
	}
	if opts.DryRun {
		s.listPlanned()
		return s.finished(), nil
	}
	winner, err := s.run(ctx)
	if winner != nil {
		s.compareTimes(ctx, winner)
		err = s.write(context.WithoutCancel(ctx), winner)
	}
	return s.finished(), err
}

func (s *search) note(text string) { s.result.Notes = append(s.result.Notes, text) }

func (s *search) warn(text string) {
	s.result.Warnings = append(s.result.Warnings, text)
	if s.opts.Warn != nil {
		s.opts.Warn(text)
	}
}

func (s *search) progress(stage string, done, n int) {
	if s.opts.Progress != nil {
		s.opts.Progress(stage, done, n)
	}
}

// finished completes the result.
func (s *search) finished() *Result {
	r := s.result
	s.checkScores()
	for _, t := range s.trials {
		if t.Holds && s.doubtful(t) {
			t.Holds, t.Why = false, "it loses about as much as one like it that the final samples refused"
		}
		if w := r.Winner; t.Holds && w != nil && s.goal.better(t, w) {
			t.Holds, t.Why = false, "the last judgement on the final samples went to one that promises more on them"
			if s.goal.Objective == Fastest && !t.Time.Confirmed {
				t.Why = "its time was not measured again before the search ended"
			}
		}
		r.Trials = append(r.Trials, *t)
	}
	markFrontier(r.Trials)
	for i := range r.Trials { // the winner and the runner-up are copies
		for _, t := range []*Trial{r.Winner, r.RunnerUp} {
			if t != nil && slices.Equal(t.Flags, r.Trials[i].Flags) {
				t.Frontier = r.Trials[i].Frontier
			}
		}
	}
	r.Seconds = time.Since(s.start).Seconds()
	return r
}

// open opens the model, the judges and the folder.
func (s *search) open(ctx context.Context) (remove func(), err error) {
	m, err := onnxq.Open(s.in)
	if err != nil {
		return nil, err
	}
	undo := func() { m.Close() }
	defer func() {
		if err != nil {
			undo()
		}
	}()
	s.model, s.size = m, m.Size()
	if err = m.Ready(ctx); err != nil {
		return nil, err
	}
	if !s.opts.DryRun { // a search may take hours
		if err = commit.Check(s.out, m.Graph().File, nil); err != nil {
			return nil, err
		}
	}
	if s.folder = s.opts.Work; s.folder == "" {
		if s.folder, err = os.MkdirTemp("", "onnxquant-tune-"); err != nil {
			return nil, err
		}
		undo = func() { m.Close(); os.RemoveAll(s.folder) }
	} else if err = os.MkdirAll(s.folder, 0o777); err != nil {
		return nil, err
	}
	if s.goal.needsTime() || s.opts.Library != "" {
		if _, err = ort.Find(ctx, s.opts.Library); err != nil {
			return nil, fmt.Errorf("the speed cannot be measured: %w", err)
		}
	}
	if err = s.judges(ctx); err != nil {
		return nil, err
	}
	sum, err := m.Graph().File.SHA256()
	if err != nil {
		return nil, err
	}
	key := []string{s.opts.Version, sum}
	if s.outputs != nil {
		key = append(key, s.outputs.key)
	}
	if s.opts.Score != nil {
		key = append(append(key, s.opts.Score.Command), s.opts.Score.programs()...)
		if score := s.result.Float.Score; score != nil {
			key = append(key, fmt.Sprint(*score))
		}
	}
	s.journal, err = openJournal(s.folder, s.machine(), key...)
	return undo, err
}

// judges opens the judges, and judges the float model.
func (s *search) judges(ctx context.Context) (err error) {
	s.progress("running IN", 0, 0)
	if len(s.opts.Data) > 0 {
		if s.outputs, err = newOutputs(ctx, s.in, s.model, s.opts); err != nil {
			return err
		}
		s.judge, s.result.Samples, s.result.Runtime = s.outputs, s.outputs.samples, s.outputs.engine.Name()
		if lacked := s.outputs.engine.Lacked(); lacked != nil {
			s.warn(calibrate.Slow(lacked))
		}
	}
	var program Judge
	if s.opts.Score != nil {
		program = s.opts.Score
	}
	if program = cmp.Or(s.opts.Judge, program); program != nil {
		s.judge = program
		if s.outputs != nil {
			s.judge = both{program, s.outputs}
		}
	}
	if s.result.Float, err = s.judge.Judge(ctx, s.in, false); err != nil {
		return fmt.Errorf("%s: %w", s.result.Input, err)
	}
	if q := s.result.Float; q.Loss != nil {
		if err := s.goal.limits(q.Score != nil).Measurable(*q.Loss); err != nil {
			return err
		}
	}
	if s.opts.Labels != "" {
		if err := s.checkLabels(); err != nil {
			return err
		}
	}
	s.countRows()
	if text := s.goal.lost(s.result.Float, s.result.Float, s.lower); text != "" {
		return fmt.Errorf("%w: %s itself has %s", ErrGoal, s.result.Input, text)
	}
	if s.opts.Score != nil && s.opts.Score.Final != "" { // a command that fails is better known now
		q, err := s.judge.Judge(ctx, s.in, true)
		if err != nil {
			return fmt.Errorf("%s: %w", s.result.Input, err)
		}
		s.result.FinalOf = &q
	}
	return nil
}

// countRows completes the samples: a share of few rows may be less than one.
func (s *search) countRows() {
	r, drop := &s.result.Samples, s.goal.MaxDrop
	if drop == nil || s.opts.Score != nil || s.opts.Judge != nil {
		r.Rows, r.FinalRows = 0, 0
		return
	}
	share := drop.Amount
	if score := s.result.Float.Score; score != nil { // the accuracy, in percent
		if share /= 100; drop.Relative {
			share = drop.Amount * *score / 100
		}
		r.Rows, r.FinalRows = s.outputs.choice.labelled(), s.outputs.final.labelled()
	}
	of := func(rows int) int { return int(share*float64(rows) + 1e-9) }
	r.MayChange, r.FinalChange = of(r.Rows), of(r.FinalRows)
	if r.Rows > 0 && (r.MayChange == 0 || r.FinalChange == 0) && share > 0 {
		s.note(fmt.Sprintf("--max-drop %v of %d rows is less than one: none may change; more samples allow some", *drop, min(r.Rows, r.FinalRows)))
	}
}

// plan lists the candidates.
func (s *search) plan(ctx context.Context) error {
	limit, spread := s.prior()
	s.belief = newBelief(limit, spread)
	p := &planner{model: s.model, opts: s.opts, limit: limit, refused: map[string]int{}}
	s.planner = p
	if s.outputs != nil {
		for _, path := range s.opts.Data {
			p.calib = append(p.calib, "--calib", path)
		}
		p.calib = append(p.calib, "--samples", fmt.Sprint(s.outputs.samples.Calibration))
		if s.opts.Library != "" {
			p.calib = append(p.calib, "--ort-lib", s.opts.Library)
		}
	}
	m, err := s.weigh(ctx)
	if err != nil {
		return err
	}
	p.all()
	if p.wants(Mixes) {
		if err := p.mixes(m); err != nil {
			return err
		}
	}
	s.untried, s.result.Considered = p.found, len(p.found)
	if len(s.untried) == 0 {
		text := "there are none of these kinds"
		for why := range p.refused {
			text = why
		}
		return fmt.Errorf("%s: no candidate fits the model: %s", s.result.Input, text)
	}
	return nil
}

// lateTimings is how many times are measured again when the search is over: as the last judgement, for what may be chosen.
const lateTimings = 2

// finalists is how many trials the final samples judge in turn. The last one is the safest.
const finalists = 5

// run tries candidates until none promises anything. It returns the one that reaches the goal also on the final samples.
func (s *search) run(ctx context.Context) (*Trial, error) {
	late := 0
	for {
		err := s.choose(ctx)
		if err != nil {
			return nil, err
		}
		if s.result.Judged == finalists-1 {
			if err := s.secure(ctx); err != nil {
				return nil, err
			}
		}
		best := s.finalist(s.ranked())
		if best == nil {
			if ctx.Err() != nil {
				s.result.Verdict, s.result.Reason = Missed, "it was interrupted before anything reached the goal"
				return nil, context.Cause(ctx)
			}
			return s.missed()
		}
		if s.goal.Objective == Fastest && !best.Time.Confirmed {
			over := ctx.Err() != nil || s.over()
			confirmed := s.confirmed()
			if len(confirmed) == 0 && over {
				if late == lateTimings {
					return s.missed()
				}
				late++
			}
			if len(confirmed) == 0 || !over {
				if err := s.confirm(context.WithoutCancel(ctx), best); err != nil {
					return nil, err
				}
				continue // another one may be faster by the new figures
			}
			best = s.finalist(confirmed)
		}
		ok, err := s.final(context.WithoutCancel(ctx), best)
		if err != nil {
			return nil, err
		}
		if ok {
			return best, nil
		}
		if s.result.Judged == finalists {
			return s.missed()
		}
	}
}

// secure tries the candidate that most likely reaches the goal on other samples, unless one as safe was tried.
func (s *search) secure(ctx context.Context) error {
	most, at := 0.0, -1
	for _, t := range s.ranked() {
		most = max(most, s.chanceOnFinal(t.candidate))
	}
	const more, plausible = 0.02, 0.01 // a size, a time or refusals can exclude what is safe
	for i, c := range s.untried {
		if chance := s.chanceOnFinal(c); chance > most+more && s.promise(c).chance > plausible && (s.goal.Objective != Smallest || c.bytes < s.size) {
			most, at = chance, i
		}
	}
	if at < 0 || s.over() || len(s.trials) >= s.most() || ctx.Err() != nil {
		return nil
	}
	c := s.untried[at]
	s.untried = slices.Delete(s.untried, at, at+1)
	return s.tryAll(ctx, []*candidate{c})
}

// missed is the end without a candidate that reaches the goal. With AllowFallback it is the best of the others.
func (s *search) missed() (*Trial, error) {
	s.result.Verdict = Missed
	var best *Trial
	for _, t := range s.trials {
		if t.Failed == "" && s.goal.beyond(t) == "" && (best == nil || s.goal.nearer(t, best)) {
			best = t
		}
	}
	s.result.Reason = fmt.Sprintf("none of %s reaches it", english.Plural(len(s.trials), "tried candidate", ""))
	if slices.ContainsFunc(s.trials, func(t *Trial) bool { return t.slow }) {
		s.result.Reason = "nothing that keeps the goal is faster than IN, beyond the uncertainty of the times"
	}
	if best == nil {
		return nil, fmt.Errorf("%w: %s", ErrGoal, s.result.Reason)
	}
	s.result.Reason += "; the nearest has " + cmp.Or(best.Why, "no limit broken")
	if !s.opts.AllowFallback {
		return nil, fmt.Errorf("%w: %s; --allow-fallback writes it", ErrGoal, s.result.Reason)
	}
	s.result.Verdict = Fallback
	return best, s.again(context.Background(), best)
}

// choose tries candidates until none promises enough, or the time is over.
func (s *search) choose(ctx context.Context) error {
	most := s.most()
	for {
		var why string
		switch {
		case ctx.Err() != nil:
			why = "it was interrupted"
		case s.over():
			why = "the time is over"
		case len(s.trials) >= most:
			why = english.PluralWord(most, "1 candidate was tried", fmt.Sprintf("%d candidates were tried", most))
		case len(s.untried) == 0:
			why = "all candidates were tried"
		case !s.next():
			why = "no other candidate promised more"
		}
		if why != "" {
			s.result.Stopped = why
			return nil
		}
		n := min(max(s.opts.Jobs, 1), len(s.untried), most-len(s.trials))
		batch := slices.Clone(s.untried[:n])
		s.untried = s.untried[n:]
		if err := s.tryAll(ctx, batch); err != nil {
			return err
		}
	}
}

// next puts the candidate first that is tried next, if there is one. A search ends when nothing is worthwhile by estimates
// that trials have tested: wrong ones were corrected by then, and widened.
func (s *search) next() bool {
	s.rank()
	return slices.ContainsFunc(s.untried, s.worthwhile) || s.resort() || s.probe()
}

// elapsed is the time of the search in seconds, with that of the earlier search that it goes on from.
func (s *search) elapsed() float64 { return s.earlier + time.Since(s.start).Seconds() }

// resort puts the likeliest candidate first, a few times, if nothing reaches the goal: the estimates may be wrong.
func (s *search) resort() bool {
	const most = 3
	if s.best() != nil || s.resorts == most {
		return false
	}
	s.resorts++
	slices.SortStableFunc(s.untried, func(a, b *candidate) int { return cmp.Compare(s.promise(b).chance, s.promise(a).chance) })
	return true
}

// most is how many candidates are tried at most.
func (s *search) most() int { return cmp.Or(s.opts.Most, DefaultMost) }

// over reports whether the budget is spent.
func (s *search) over() bool { return !s.end.IsZero() && time.Now().After(s.end) }

// listPlanned lists the candidates that were not made.
func (s *search) listPlanned() {
	s.rank()
	s.result.Verdict, s.result.Reason, s.result.Stopped = Planned, "nothing was made", "it only planned"
	for _, c := range s.untried {
		p := s.promise(c)
		s.result.Planned = append(s.result.Planned, Trial{Flags: c.flags, Label: c.label, Kind: c.kind, Planned: c.bytes, Estimated: p.loss, Chance: p.chance})
	}
}
