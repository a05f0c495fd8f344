package summary

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/tune"
)

// Trials prints a line for each trial as it comes.
type Trials struct {
	console *cli.Console
	goal    *tune.Goal
	quiet   bool
	bar     *cli.Progress
	rows    int
}

// NewTrials returns an empty table of trials for a goal.
func NewTrials(c *cli.Console, goal *tune.Goal, quiet bool) *Trials {
	return &Trials{console: c, goal: goal, quiet: quiet, bar: cli.NewProgress(c, quiet)}
}

// Progress is for tune.Options.
func (t *Trials) Progress(stage string, done, n int) { t.bar.Share(stage, int64(done), int64(n)) }

// Warn prints a warning above the progress.
func (t *Trials) Warn(text string) {
	t.bar.Clear()
	t.console.Warn(text)
}

// Close removes the progress.
func (t *Trials) Close() { t.bar.Clear() }

const trialColumns = "%10s  %-22s  %9s  %7s  %-6s  %s\n"

// Add prints the line of a trial.
func (t *Trials) Add(trial tune.Trial) {
	if t.quiet {
		return
	}
	t.bar.Clear()
	if t.rows++; t.rows == 1 {
		fmt.Fprintf(t.console.Stderr, trialColumns, "SIZE", "LOSS", "TIME", "TOOK", "GOAL", "FLAGS")
	}
	fmt.Fprintf(t.console.Stderr, trialColumns, trialCells(trial, t.goal)...)
}

// trialCells are those of a trial.
func trialCells(t tune.Trial, goal *tune.Goal) []any {
	holds, size, loss := "no", "-", lossText(t.Quality, goal)
	switch {
	case t.Failed != "":
		holds, loss = "failed", cli.Clip(cli.Printable(t.Failed), cli.MaxText)
	case t.Holds:
		holds = "kept"
	}
	if t.Bytes > 0 {
		size = trialSize(t.Bytes)
	}
	took := fmt.Sprintf("%.1f s", t.Seconds)
	if t.Kept {
		took = "known"
	}
	return []any{size, loss, timeText(t.Time), took, holds, cli.Printable(t.Label)}
}

// trialSize has three digits: candidates differ by little.
func trialSize(n int64) string { return humanize.IBytesN(uint64(n), 3) }

func timeText(t *tune.Time) string {
	if t == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", t.Ratio)
}

// lossText is the score, or what is lost of the outputs, in what the goal limits. Without distributions, the largest element says something only if the goal limits it.
func lossText(q tune.Quality, goal *tune.Goal) string {
	switch {
	case q.Score != nil:
		return fmt.Sprintf("score %.6g", *q.Score)
	case q.Loss == nil:
		return "-"
	}
	var texts []string
	kl, sqnr := q.Loss.KL, q.Loss.SQNR
	if sqnr != nil && (kl == nil || goal.MinSQNR != nil) {
		texts = append(texts, cli.Decibels(*sqnr))
	}
	if kl != nil && (goal.MinSQNR == nil || goal.MaxKL != nil) {
		texts = append(texts, fmt.Sprintf("KL %.2g", *kl))
	}
	if q.Loss.Drop != nil && (kl != nil && goal.MinSQNR == nil || goal.MaxDrop != nil) {
		texts = append(texts, fmt.Sprintf("%.3g%% changed", 100**q.Loss.Drop))
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}

// Tuned prints what a search found. page is the path of the page that was written, or "".
func Tuned(c *cli.Console, r *tune.Result, page string) {
	if r.Verdict == tune.Planned {
		rows := [][]string{{"SIZE", "LOSS", "CHANCE", "FLAGS"}}
		for _, t := range r.Planned {
			rows = append(rows, []string{trialSize(t.Planned), fmt.Sprintf("%.2g", t.Estimated), fmt.Sprintf("%.0f %%", 100*t.Chance), cli.Printable(t.Label)})
		}
		cli.PrintTable(c.Stdout, rows)
		cli.PrintFacts(c.Stderr, samplesOf(r))
		return
	}
	facts := []cli.Fact{{Label: "goal", Text: r.Goal.String()}}
	add := func(label, text string) { facts = append(facts, cli.Fact{Label: label, Text: text}) }
	if r.Verdict != "" { // an error ends a search without one
		add("verdict", string(r.Verdict)+": "+cli.Printable(r.Reason))
	}
	if t := r.Winner; t != nil {
		text := trialSize(t.Bytes) + ", " + lossText(t.Quality, &r.Goal)
		if t.Time != nil {
			text += fmt.Sprintf(", a run takes %v times the time of IN", t.Time)
		}
		add("chosen", text)
	}
	if r.Final != nil {
		text := lossText(*r.Final, &r.Goal)
		if r.FinalOf != nil && r.FinalOf.Score != nil {
			text += fmt.Sprintf(", of IN %.6g", *r.FinalOf.Score)
		}
		add("final", text)
	}
	if t := r.RunnerUp; t != nil {
		add("runner-up", fmt.Sprintf("%s, %s: %s", trialSize(t.Bytes), lossText(t.Quality, &r.Goal), cli.Printable(t.Label)))
	}
	facts = append(facts, samplesOf(r)...)
	tried := fmt.Sprintf("%d of %d candidates in %.0f s", len(r.Trials), r.Considered, math.Ceil(r.Seconds))
	if r.Stopped != "" {
		tried += "; the search ended because " + r.Stopped
	}
	add("tried", tried)
	written := []string{}
	for _, path := range []string{r.Output, r.Precision, page} {
		if path != "" {
			written = append(written, cli.Printable(path))
		}
	}
	facts = append(facts, cli.Labelled("written", written)...)
	if len(r.Command) > 0 {
		add("again", r.CommandLine())
	}
	cli.PrintFacts(c.Stderr, facts)
}

// samplesOf says how many samples there are, how many decisions may change, and what is to know about them.
func samplesOf(r *tune.Result) (facts []cli.Fact) {
	add := func(label, text string) { facts = append(facts, cli.Fact{Label: label, Text: text}) }
	calibrate, choose, judge := "calibrated", "chose", "judged at the end"
	if r.Verdict == tune.Planned {
		calibrate, choose, judge = "calibrate", "choose", "judge at the end"
	}
	if s := r.Samples; s.Calibration > 0 {
		add("samples", fmt.Sprintf("%d %s, %d %s, %d %s", s.Calibration, calibrate, s.Choice, choose, s.Final, judge))
	}
	if s := r.Samples; s.Rows > 0 {
		add("decisions", fmt.Sprintf("may change in %d of %d rows of the samples that choose, in %d of %d of those that judge", s.MayChange, s.Rows, s.FinalChange, s.FinalRows))
	}
	for _, note := range r.Notes {
		add("note", note)
	}
	return facts
}
