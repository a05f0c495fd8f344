package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"onnxquant/formats/errstat"
	"onnxquant/internal/commit"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
)

// Result describes a finished conversion.
type Result struct {
	Plan   *Plan           // the plan that was carried out
	Errors []errstat.Stats // by weight of the plan

	Calibration *layerfit.Errors  // or nil
	Experts     []FallbackExperts // that did not get the codes asked for
	Tuned       *Tuned            // nil: scales were not tuned
	Balanced    int               // number of layers that read channels with factors (algorithm awq)
	Warnings    []string          // that depend on values
	Verified    bool              // the output was read again and compared
}

// Job is a plan and the path of its output.
type Job struct {
	Plan *Plan
	Path string
}

// Done is the outcome of a job: a result or an error.
type Done struct {
	Result *Result
	Err    error
}

// Convert carries out the plan and writes the model to path.
func (p *Plan) Convert(ctx context.Context, path string) (*Result, error) {
	done := All(ctx, []Job{{p, path}})[0]
	return done.Result, done.Err
}

// All carries out plans of one model. The model is read once for all of them, with the memory of
// one conversion. Each plan succeeds or fails on its own. If values cannot be quantized as planned,
// All plans again with exceptions for their weights.
func All(ctx context.Context, jobs []Job) []Done {
	done := make([]Done, len(jobs))
	var open []*conversion
	telling, runs := new(sync.Mutex), map[string]*run{}
	for i, j := range jobs {
		c := &conversion{
			plan: j.Plan, path: j.Path,
			progress: &progress{tell: j.Plan.opts.Progress, mu: telling}, done: &done[i],
		}
		if slices.ContainsFunc(jobs[:i], func(other Job) bool { return filepath.Clean(other.Path) == filepath.Clean(j.Path) }) {
			c.end(nil, fmt.Errorf("%s: %w: another output has this name", j.Path, commit.ErrTarget))
			continue
		}
		if err := c.prepare(ctx, runs); err != nil {
			c.end(nil, err)
			continue
		}
		open = append(open, c)
	}
	for len(open) > 0 {
		open = slices.DeleteFunc(open, func(c *conversion) bool { return !c.begin(ctx) })
		readTogether(ctx, open)
		open = slices.DeleteFunc(open, func(c *conversion) bool { return c.settle(c.content.finish(ctx)) })
	}
	return done
}

// conversion is a job in progress.
type conversion struct {
	plan       *Plan
	path       string
	progress   *progress
	calibrated *calibrated // or nil

	layersBalanced int // see Result.Balanced

	content *content // of this attempt
	done    *Done
}

// prepare runs the calibration, if the plan has one.
func (c *conversion) prepare(ctx context.Context, runs map[string]*run) (err error) {
	if c.plan, c.layersBalanced, err = c.plan.balanced(ctx, c.path); err != nil {
		return err
	}
	found, err := c.plan.calibrate(ctx, c.path, runs)
	if err != nil || found.none() {
		return err
	}
	c.calibrated = found.codes
	p, err := c.plan.again(found)
	if err == nil {
		c.plan = p
	}
	return err
}

// begin begins an attempt. If that fails, begin ends the conversion and returns false.
func (c *conversion) begin(ctx context.Context) (begun bool) {
	p, err := c.plan.At(c.path)
	if err != nil {
		c.end(nil, err)
		return false
	}
	c.plan, c.content = p, newContent(p, c.path, c.progress)
	c.content.begin(ctx)
	return true
}

// settle ends a conversion, or makes another plan if the values demand one.
func (c *conversion) settle(err error) (done bool) {
	var found findings
	switch {
	case err == nil:
		c.end(&Result{c.plan, c.content.errors(), c.calibrated.errors(), c.calibrated.experts(), c.calibrated.scalesTuned(), c.layersBalanced, c.content.warnings(), !c.plan.opts.NoVerify}, nil)
		return true
	case errors.As(err, &found):
		var p *Plan
		if p, err = c.plan.again(found); err == nil {
			c.plan = p
			return false
		}
	}
	c.end(nil, err)
	return true
}

// end stores the outcome of the conversion.
func (c *conversion) end(r *Result, err error) {
	if c.calibrated != nil {
		if c.calibrated.close(err != nil); err != nil && c.calibrated.owner {
			err = layerfit.Keep(err)
		}
	}
	*c.done = Done{r, err}
}

// task is a tile or a stretch of one of several outputs.
type task struct {
	of      *content
	i       int
	at      modelfile.Place
	reading quantize.Reading // of a tile with a single read; else zero
	rounds  int              // 1 if the task rounds the elements in place: tasks after it must read again
}

func (t task) compare(u task) int {
	return cmp.Or(t.at.Compare(u.at), t.reading.Compare(u.reading), cmp.Compare(t.rounds, u.rounds))
}

// readTogether does the tasks of all conversions, in the order of the model's files. Tasks with the
// same Reading go to one worker, one after the other, which reads once.
func readTogether(ctx context.Context, all []*conversion) {
	var tasks []task
	workers := math.MaxInt // the least that a conversion allows: each has its own buffers
	for _, c := range all {
		for i := range c.content.tasks() {
			tasks = append(tasks, c.content.task(i))
		}
		workers = min(workers, c.content.workers)
	}
	slices.SortStableFunc(tasks, task.compare)
	var alike [][]task
	for i, t := range tasks {
		if i > 0 && t.reading != (quantize.Reading{}) && t.reading == tasks[i-1].reading {
			alike[len(alike)-1] = append(alike[len(alike)-1], t)
		} else {
			alike = append(alike, tasks[i:i+1:i+1])
		}
	}
	// A failed task stops its own conversion. A canceled context stops all; each reports the cause.
	work.Each(ctx, workers, len(alike), func(_ context.Context, w *worker, i int) error {
		for _, t := range alike[i] {
			t.of.do(w, t.i)
		}
		return nil
	})
}
