package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"onnxquant/internal/commit"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/onnxq"
	"onnxquant/onnxq/bench"
)

// search is the state of Search.
type search struct {
	in, out string
	opts    *Options
	goal    *Goal
	lower   bool // a lower score is better
	start   time.Time
	end     time.Time // of the budget; zero: none

	model   *onnxq.Model
	outputs *outputs // nil without data
	judge   Judge
	planner *planner
	journal *journal
	folder  string
	result  *Result
	library bool // ONNX Runtime is there

	earlier float64 // seconds of an earlier search

	severe map[Kind]float64 // severity from which trials do not count, for the final samples refused one

	resorts int // see resort
	untried []*candidate
	trials  []*Trial
	belief  *belief
	off     map[string][]float64 // class → logarithms of measured over estimated losses
	took    map[string][]float64 // class → seconds
	units   []float64            // seconds over cost
	speeds  map[string][]float64 // logarithms of ratios of time
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
		severe: map[Kind]float64{}, off: map[string][]float64{}, took: map[string][]float64{}, speeds: map[string][]float64{}}
	s.result = &Result{Goal: opts.Goal, Input: in, Trials: []Trial{}, out: out}
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
		err = s.write(context.WithoutCancel(ctx), winner)
	}
	return s.finished(), err
}

func (s *search) note(text string) { s.result.Notes = append(s.result.Notes, text) }

func (s *search) progress(stage string, done, n int) {
	if s.opts.Progress != nil {
		s.opts.Progress(stage, done, n)
	}
}

// finished completes the result.
func (s *search) finished() *Result {
	r := s.result
	for _, t := range s.trials {
		if t.Holds && s.doubtful(t) {
			t.Holds, t.Why = false, "it loses about as much as one like it that the final samples refused"
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
	s.model = m
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
	_, err = ort.Find(ctx, s.opts.Library)
	if s.library = err == nil; !s.library && (s.goal.needsTime() || s.opts.Library != "") {
		return nil, fmt.Errorf("the speed cannot be measured: %w", err)
	}
	if err = s.judges(ctx); err != nil {
		return nil, err
	}
	sum, err := m.Graph().File.SHA256()
	if err != nil {
		return nil, err
	}
	key := []string{s.opts.Version, sum, s.out}
	if s.outputs != nil {
		key = append(key, s.outputs.key)
	}
	if s.opts.Score != nil {
		key = append(key, s.opts.Score.Command)
	}
	s.journal, err = openJournal(s.folder, key...)
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
		return fmt.Errorf("%s: %w", s.in, err)
	}
	if q := s.result.Float; q.Loss != nil {
		if err := s.goal.limits(q.Score != nil).Measurable(*q.Loss); err != nil {
			return err
		}
	}
	if text := s.goal.lost(s.result.Float, s.result.Float, s.lower); text != "" {
		return fmt.Errorf("%w: %s itself has %s", ErrGoal, s.in, text)
	}
	if s.opts.Score != nil && s.opts.Score.Final != "" { // a command that fails is better known now
		q, err := s.judge.Judge(ctx, s.in, true)
		if err != nil {
			return fmt.Errorf("%s: %w", s.in, err)
		}
		s.result.FinalOf = &q
	}
	return nil
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
		return fmt.Errorf("%s: no candidate fits the model: %s", s.in, text)
	}
	return nil
}

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

// finalists is how many trials the final samples judge in turn. The last one is the safest.
const finalists = 4

// run tries candidates until none promises anything. It returns the one that reaches the goal also on the final samples.
func (s *search) run(ctx context.Context) (*Trial, error) {
	for {
		err := s.choose(ctx)
		if err != nil {
			return nil, err
		}
		best := s.finalist()
		if best == nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return s.missed()
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

// missed is the end without a candidate that reaches the goal. With AllowFallback it is the best of the others.
func (s *search) missed() (*Trial, error) {
	s.result.Verdict = Missed
	var best *Trial
	for _, t := range s.trials {
		if t.Failed == "" && s.goal.beyond(t) == "" && (best == nil || t.loss < best.loss) {
			best = t
		}
	}
	s.result.Reason = fmt.Sprintf("none of %d candidates that were tried reaches it", len(s.trials))
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
	most := cmp.Or(s.opts.Most, DefaultMost)
	for {
		var why string
		s.rank()
		switch {
		case ctx.Err() != nil:
			why = "it was interrupted"
		case s.over():
			why = "the time is over"
		case len(s.trials) >= most:
			why = fmt.Sprintf("%d candidates were tried", most)
		case len(s.untried) == 0:
			why = "all candidates were tried"
		case !slices.ContainsFunc(s.untried, s.worthwhile) && !s.resort():
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

// worthwhile reports whether the expected gain of a candidate is worth its time: to double the time of the search must
// promise 15 %.
func (s *search) worthwhile(c *candidate) bool {
	const least, doubled = 0.004, 0.15
	enough := least
	if len(s.trials) > 0 {
		enough = max(least, doubled*s.cost(c)/s.elapsed())
	}
	return s.promise(c).value >= enough
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

// over reports whether the budget is spent.
func (s *search) over() bool { return !s.end.IsZero() && time.Now().After(s.end) }

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
	spread = c.spread
	switch {
	case len(s.off[c.class]) > 0:
		spread = max(c.spread/2, 0.3)
	case len(s.off[c.group()]) > 0:
		spread = max(c.spread/1.5, 0.4)
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
		if t.Time != nil {
			s.speeds[c.speed] = append(s.speeds[c.speed], math.Log(max(t.Time.Ratio, 1e-3)))
		}
		t.Holds = t.Why == "" && t.Failed == ""
		if s.goal.Objective == Smallest && t.Bytes >= s.model.Size() && t.Holds {
			t.Holds, t.Why = false, "not smaller than IN"
		}
		if s.goal.Objective == Fastest && t.Holds && t.Time.Ratio >= 1 {
			t.Holds, t.Why = false, fmt.Sprintf("%.2f times the time of IN", t.Time.Ratio)
		}
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
	if s.opts.Tried != nil {
		s.opts.Tried(*t)
	}
	return nil
}

// mostOff bounds how far an estimate is corrected: some samples show no loss at all.
const mostOff = 4

// learn notes the loss of a trial, and whether the goal allows it.
func (s *search) learn(t *Trial, reached bool) {
	c := t.candidate
	if t.Quality.Loss != nil && s.outputs != nil {
		off := min(max(logOf(t.Quality.Loss.Damage)-logOf(c.noise), -mostOff), mostOff)
		for _, name := range []string{"", c.group(), c.class} {
			s.off[name] = append(s.off[name], off)
		}
		s.belief.saw(t.Quality.Loss.Damage, 0.15, reached)
		return
	}
	loss, spread := s.estimate(c)
	s.belief.saw(loss, spread, reached)
}

// clock measures the time of a run.
func (s *search) clock(ctx context.Context, t *Trial) error {
	path, err := s.made(ctx, t)
	if err != nil {
		return err
	}
	s.progress("timing "+t.Label, 0, 0)
	r, err := s.bench(ctx, path)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		t.Failed = err.Error()
	default:
		t.Time = r[0]
	}
	return nil
}

// bench measures models beside the float model.
func (s *search) bench(ctx context.Context, paths ...string) (times []*Time, err error) {
	each := 250 * time.Millisecond
	if s.goal.needsTime() {
		each = 1500 * time.Millisecond
	}
	threads := max(s.opts.Threads, 1)
	o := bench.Options{ORTLibrary: s.opts.Library, Threads: threads, Inputs: s.opts.Data, Duration: each * time.Duration(len(paths)+1)}
	r, err := bench.Models(ctx, append([]string{s.in}, paths...), o)
	if err != nil {
		return nil, err
	}
	for _, m := range r.Models[1:] {
		ratio := m.Ratio
		if threads == 1 {
			ratio = m.CPURatio
		}
		times = append(times, &Time{P50: m.P50, Ratio: ratio})
	}
	return times, nil
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
	return path, s.opts.Make(ctx, append([]string{"--quiet"}, arguments(c.flags, s.in, path)...))
}

// made makes a candidate again if its file is not there.
func (s *search) made(ctx context.Context, t *Trial) (string, error) {
	path := s.place(t.candidate)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return s.make(ctx, t.candidate)
}

// arguments are those of the command that makes a candidate. They read its precision_info beside the output.
func arguments(flags []string, in, out string) []string {
	flags = slices.Clone(flags)
	for i, flag := range flags {
		if strings.HasPrefix(flag, mixMark) {
			flags[i] = mixPath(out)
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

// listPlanned lists the candidates that were not made.
func (s *search) listPlanned() {
	s.rank()
	s.result.Verdict, s.result.Reason, s.result.Stopped = Planned, "nothing was made", "it only planned"
	for _, c := range s.untried {
		p := s.promise(c)
		s.result.Planned = append(s.result.Planned, Trial{Flags: c.flags, Label: c.label, Kind: c.kind, Planned: c.bytes, Estimated: p.loss, Chance: p.chance})
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
