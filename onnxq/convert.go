package onnxq

import (
	"context"
	"slices"
	"time"

	"onnxquant/formats/errstat"
)

// Convert quantizes the model at in and writes it to out. The input is never written to, and
// out appears complete or not at all.
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

// Convert carries out the plan, as the caller may have edited it, and writes the model to the
// file out. Weights with NaN,
// infinity or only values too small for a scale cannot be quantized: they are an error if
// Options.Strict is set. Otherwise they stay in float, a warning names them, and the report
// has the plan that was carried out.
func (p *Plan) Convert(ctx context.Context, out string) (*Report, error) {
	start := time.Now()
	settled, err := p.settled()
	if err != nil {
		return nil, err
	}
	done, err := settled.Convert(ctx, out)
	if err != nil {
		return nil, err
	}
	carried := describe(done.Plan, p.opts)
	carried.Warnings, carried.input = slices.Concat(done.Plan.Warnings, done.Warnings), p.input
	r := &Report{Plan: carried, Tensors: []TensorReport{}, Verified: done.Verified, Output: out, Elapsed: time.Since(start)}
	if c := done.Calibration; c != nil {
		n := float64(max(c.Layers, 1))
		r.Calibration = &Calibrated{c.Layers, c.Lost, c.Found / n, c.MSE / n, c.Output, c.OutputMSE, c.Refused}
	}
	if carried.External {
		paths := done.Plan.Output.DataPaths(out)
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
	return r, nil
}
