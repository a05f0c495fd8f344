package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"onnxquant/formats/errstat"
	"onnxquant/internal/commit"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
)

// Result describes a finished conversion.
type Result struct {
	Plan   *Plan           // the plan that was carried out
	Errors []errstat.Stats // by weight of the plan

	Calibration *layerfit.Errors // or nil
	Balanced    int              // layers that read channels with factors
	Warnings    []string         // about values
	Verified    bool             // the output was read again and compared
}

// Job is a plan and the file that it makes.
type Job struct {
	Plan *Plan
	Path string
}

// Done is what became of a job.
type Done struct {
	Result *Result
	Err    error // or nil
}

// Convert carries out the plan and writes the model to path.
func (p *Plan) Convert(ctx context.Context, path string) (*Result, error) {
	done := All(ctx, []Job{{p, path}})[0]
	return done.Result, done.Err
}

// All carries out plans of one model. They read it together, from its beginning to its end, so
// that it is read from the disk once, in the memory that one conversion takes. Each of them
// succeeds or fails on its own. If one finds weights with values that cannot be quantized as
// planned, it plans again with exceptions for them.
func All(ctx context.Context, jobs []Job) []Done {
	done := make([]Done, len(jobs))
	var open []*conversion
	telling, runs := new(sync.Mutex), map[string]*run{}
	for i, j := range jobs {
		c := &conversion{
			Plan: j.Plan, path: j.Path, found: noExceptions(), far: map[string]string{},
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

// conversion is a job that is being done.
type conversion struct {
	*Plan
	path       string
	found      discover.Exceptions
	far        map[string]string // values that half cannot represent, by path
	calibrated *calibrated
	progress   *progress

	layersBalanced int // that read channels with factors

	content *content // of this attempt
	done    *Done
}

// prepare finds the codes that follow from calibration.
func (c *conversion) prepare(ctx context.Context, runs map[string]*run) (err error) {
	if c.Plan, c.layersBalanced, err = c.balanced(ctx, c.path); err != nil {
		return err
	}
	if c.calibrated, err = c.calibrate(ctx, c.path, c.found, runs); err != nil || c.calibrated == nil {
		return err
	}
	p, err := c.calibrated.apply(c.Plan, c.found, c.far)
	if err != nil {
		return err
	}
	c.Plan = p
	return nil
}

// begin begins an attempt, or ends the conversion.
func (c *conversion) begin(ctx context.Context) (begun bool) {
	p, err := c.At(c.path)
	if err != nil {
		c.end(nil, err)
		return false
	}
	c.Plan, c.content = p, newContent(p, c.path, c.progress)
	c.content.begin(ctx)
	return true
}

// settle ends a conversion, or plans it again if its values demand that.
func (c *conversion) settle(err error) (done bool) {
	var unfit *unfitError
	var beyond *beyondError
	was, p := c.Plan, (*Plan)(nil)
	switch {
	case err == nil:
		c.end(&Result{was, c.content.errors(), c.calibrated.errors(), c.layersBalanced, c.content.warnings(), !was.opts.NoVerify}, nil)
		return true
	case errors.As(err, &beyond):
		maps.Copy(c.far, beyond.values)
		c.found = noExceptions()
		if p, err = planFrom(was.input, was.opts, c.far); err == nil && c.calibrated != nil {
			p, err = c.calibrated.apply(p, c.found, c.far)
		}
	case errors.As(err, &unfit):
		maps.Copy(c.found.KeepFloat, unfit.reasons)
		maps.Copy(c.found.Huge, unfit.huge)
		maps.Copy(c.found.Scales, unfit.scales)
		p, err = c.calibrated.apply(was, c.found, c.far)
	}
	if err != nil {
		c.end(nil, err)
		return true
	}
	p.TileLimit, c.Plan = was.TileLimit, p
	return false
}

// end says what became of the conversion.
func (c *conversion) end(r *Result, err error) {
	if c.calibrated != nil {
		if c.calibrated.close(err != nil); err != nil && c.calibrated.owner {
			err = fmt.Errorf("%w (%w)", err, layerfit.ErrKept)
		}
	}
	*c.done = Done{r, err}
}

// task is a tile or a stretch of one of several outputs.
type task struct {
	of      *content
	i       int
	at      modelfile.Place
	reading quantize.Reading // of a tile that is read at once
	rounds  int              // 1 if it rounds what was read, so that later tasks must read it again
}

func (t task) compare(u task) int {
	return cmp.Or(t.at.Compare(u.at), t.reading.Compare(u.reading), cmp.Compare(t.rounds, u.rounds))
}

// readTogether does the tasks of all conversions, in the order of the model's files. Those that read
// the same are done by one worker, one after the other, which then reads it once.
func readTogether(ctx context.Context, all []*conversion) {
	var tasks []task
	workers := math.MaxInt // each has the buffers that the conversion with the fewest allows
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
	// A task that fails stops its own conversion; all stop with the context, and tell why.
	work.Each(ctx, workers, len(alike), func(_ context.Context, w *worker, i int) error {
		for _, t := range alike[i] {
			t.of.do(w, t.i)
		}
		return nil
	})
}

func noExceptions() discover.Exceptions {
	return discover.Exceptions{KeepFloat: map[*graph.Value]string{}, Huge: map[*graph.Value]bool{}, Scales: map[*graph.Value]discover.Scales{}}
}

// unfitError says that the values of some weights cannot be quantized as planned.
type unfitError struct {
	reasons map[*graph.Value]string // to leave weights in float
	huge    map[*graph.Value]bool   // as in discover.Exceptions
	scales  map[*graph.Value]discover.Scales
}

func (e *unfitError) Error() string { return "some weights cannot be quantized as planned" }

// beyondError says that half cannot represent some values, by path.
type beyondError struct{ values map[string]string }

func (e *beyondError) Error() string { return "some values are beyond the range of half" }
