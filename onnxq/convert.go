package onnxq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Convert quantizes the model at in and writes it to out. The input is never
// written to, and out appears whole or not at all.
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

// Convert carries the plan out and writes the model to the file out. Weights
// that turn out to hold NaN or infinity, or values too small for any scale,
// cannot be quantized. Unless the options are strict they are left in float, a
// warning names them, and the report has the plan that was carried out.
func (p *Plan) Convert(ctx context.Context, out string) (*Report, error) {
	start := time.Now()
	if p.conv == nil {
		return nil, errors.New("the plan was not made by Model.Plan")
	}
	unfit := map[*onnxpb.TensorProto]string{}
	done := int64(0)
	for {
		report, found, err := p.conv.convert(ctx, p, out, &done)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			report.Elapsed = time.Since(start)
			return report, nil
		}
		maps.Copy(unfit, found)
		if p, err = p.conv.model.plan(p.conv.opts, unfit); err != nil {
			return nil, err
		}
	}
}

// SetOutput lays the plan out for an output of that name. Sizes depend on it
// where there is external data, because the model holds the data file's name.
func (p *Plan) SetOutput(out string) error {
	if p.conv == nil || !p.External {
		return nil
	}
	if err := p.conv.to.out.encode(dataName(out)); err != nil {
		return err
	}
	p.OutBytes = p.conv.to.out.size()
	return nil
}

// CheckOutput tells whether the plan can be carried out to the file out, as far as
// can be said without writing: the input, folders, and external data that belong to
// no model of that name are not replaced.
func (p *Plan) CheckOutput(out string) error {
	if p.conv == nil {
		return nil
	}
	return modelfile.CheckTarget(out, p.conv.model.file, p.External)
}

// convert writes the target, or finds weights that stop it. It adds to done,
// the bytes worked on.
func (c *conversion) convert(ctx context.Context, p *Plan, out string, done *int64) (*Report, map[*onnxpb.TensorProto]string, error) {
	if err := p.SetOutput(out); err != nil {
		return nil, nil, err
	}
	target, err := modelfile.CreateTarget(ctx, out, c.model.file, c.to.out.external())
	if err != nil {
		return nil, nil, err
	}
	defer target.Abort()
	e := newExecutor(c, target, *done)
	unfit, err := e.run(ctx)
	*done = e.done
	if changed := c.model.file.Unchanged(); changed != nil {
		return nil, nil, changed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", out, err)
	}
	if len(unfit) > 0 {
		return nil, unfit, nil
	}
	if !c.opts.NoVerify {
		if err := e.verify(ctx); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", out, err)
		}
	}
	if err := target.Commit(c.to.out.relocate); err != nil {
		return nil, nil, err
	}
	r := &Report{Plan: p, Tensors: e.reports(p), Verified: !c.opts.NoVerify, Output: out}
	if c.to.out.external() {
		r.Data = modelfile.DataPath(out)
	}
	return r, nil, nil
}

// exact stands for the infinite SQNR, which JSON does not have, of a weight
// without any error.
const exact = 999

// reports tells how well each weight's codes stand for it.
func (e *executor) reports(p *Plan) []TensorReport {
	sums := e.sums()
	reports := []TensorReport{}
	for _, w := range e.conv.to.weights {
		s := sums[w]
		r := TensorReport{TensorPlan: p.Tensors[w.planned], MaxError: s.MaxAbs, MSE: s.MSE(), SQNR: min(s.SQNR(), exact)}
		reports = append(reports, r)
	}
	return reports
}

// dataName is the external data file's name as the model at path refers to it.
func dataName(path string) string { return filepath.Base(modelfile.DataPath(path)) }
