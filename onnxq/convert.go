package onnxq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/errstat"
	"onnxquant/internal/commit"
	"onnxquant/internal/convert"
	"onnxquant/internal/work"
)

// Convert quantizes the model at in and writes it to out. It never writes to the input. The output
// appears complete or not at all.
func Convert(ctx context.Context, in, out string, opts Options) (*Report, error) {
	m, err := Open(in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	p, err := m.Plan(opts)
	if err != nil {
		return nil, err
	}
	return p.Convert(ctx, out)
}

// Convert carries out the plan, with the caller's edits, and writes the model to the file out.
// Weights with NaN, infinity or only values too small for a scale cannot be quantized. If
// Options.Strict is set, such weights are an error. Otherwise they stay in float and a warning
// names them. The report has the plan that was carried out.
func (p *Plan) Convert(ctx context.Context, out string) (*Report, error) {
	made := ConvertAll(ctx, []Output{{Plan: p, Path: out}})[0]
	return made.Report, made.Err
}

// Output is a plan and the path of its output.
type Output struct {
	Plan *Plan
	Path string
}

// Result is the outcome of an Output: a report or an error.
type Result struct {
	Report *Report
	Err    error
}

// ConvertAll carries out several plans of one model. Each plan is carried out as by Convert, but
// the model is read once. Each plan succeeds or fails on its own. Together they take the memory of
// one conversion and of the plans. Plans and paths must differ. Calls of Options.Progress do not
// overlap, even between plans.
func ConvertAll(ctx context.Context, outputs []Output) []Result {
	start := time.Now()
	made := make([]Result, len(outputs))
	var jobs []convert.Job
	var of []int // index of the output of each job
	warnings, replaced := make([][]string, len(outputs)), make([]bool, len(outputs))
	for i, o := range outputs {
		replaced[i] = commit.Exists(o.Path)
		settled, err := o.settled(ctx)
		if err == nil {
			warnings[i], err = o.warnings()
		}
		if err != nil {
			made[i].Err = err
			continue
		}
		jobs, of = append(jobs, convert.Job{Plan: settled, Path: o.Path}), append(of, i)
	}
	for j, done := range convert.All(ctx, jobs) {
		if done.Err != nil {
			made[of[j]].Err = done.Err
			continue
		}
		r := outputs[of[j]].report(done.Result)
		r.Plan.Warnings = slices.Concat(warnings[of[j]], r.Plan.Warnings)
		r.Replaced, r.Elapsed = replaced[of[j]], time.Since(start)
		made[of[j]].Report = r
	}
	return made
}

// settled returns the plan with the caller's edits.
func (o Output) settled(ctx context.Context) (*convert.Plan, error) {
	if err := work.CheckContext(ctx); err != nil {
		return nil, err
	}
	return o.Plan.asEdited()
}

// warnings returns the warnings about calibration data.
func (o Output) warnings() ([]string, error) {
	if c, ok := o.Plan.opts.Calibration.(activations); ok && o.Plan.CalibrationCost != nil {
		return c.Warnings()
	}
	return nil, nil
}

// report describes a finished conversion.
func (o Output) report(done *convert.Result) *Report {
	carried := describe(done.Plan, o.Plan.opts)
	carried.Warnings, carried.input = slices.Concat(done.Plan.Warnings, done.Warnings), o.Plan.input
	if carried.CalibrationCost != nil {
		carried.CalibrationCost = o.Plan.CalibrationCost
	}
	carried.Activations, carried.Dynamic, carried.Levels = o.Plan.Activations, o.Plan.Dynamic, o.Plan.Levels
	r := &Report{Plan: carried, Tensors: []TensorReport{}, Verified: done.Verified, Output: o.Path}
	if c := done.Calibration; c != nil {
		n := float64(max(c.Layers, 1))
		r.Calibration = &Calibrated{
			Layers: c.Layers, Lost: c.Lost, Error: c.Found / n, MSE: c.MSE / n, Balanced: done.Balanced,
			Columns: c.Columns, GPTQ: c.GPTQ, Output: c.Output, OutputMSE: c.OutputMSE, Samples: c.Samples, HeldOut: c.HeldOut, Refused: c.Refused,
		}
		for _, e := range done.Experts {
			r.Calibration.Experts = append(r.Calibration.Experts, FallbackExperts{e.Weight, e.Part, e.Few, e.NotHeldOut, e.Worse, e.Unsolved, e.UnsolvedWhy})
		}
		if t := done.Tuned; t != nil {
			r.Calibration.Tuned = &Tuned{t.Layers, t.Scales, t.Steps, t.Loss, t.Before, t.After, t.Why}
			if t.Why != "" {
				carried.Warnings = append(carried.Warnings, "scales are not tuned: "+t.Why)
			}
		}
		r.Calibration.Poor = c.Samples > 0 && r.Calibration.SQNR() < PoorOutputs
		if c.Few > 0 && !c.HeldOut {
			carried.Warnings = append(carried.Warnings, fmt.Sprintf("calibration data are few: %s more inputs than the data have rows, and no sample could be held out; give more samples (128), or convert without calibration",
				english.Plural(c.Few, "layer has", "layers have")))
		}
	}
	if carried.External {
		paths := done.Plan.Output.DataPaths(o.Path)
		r.Data, r.MoreData = paths[0], paths[1:]
	}
	errors := done.Errors
	for _, t := range carried.Tensors {
		if t.Decision == Quantize {
			s := errors[0]
			errors = errors[1:]
			r.Tensors = append(r.Tensors, TensorReport{TensorPlan: t, MaxError: s.MaxAbs, MSE: s.MSE(), SQNR: min(s.SQNR(), errstat.Exact)})
		}
	}
	return r
}
