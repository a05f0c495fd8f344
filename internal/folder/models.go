package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"onnxquant/internal/preset"
	"onnxquant/internal/transformer"
	"onnxquant/onnxq"
)

// Model is a model of a folder.
type Model struct {
	Name string // in the folder
	*onnxq.Model
}

// Operators are the operators of the model.
func (m *Model) operators() map[string]bool {
	found := map[string]bool{}
	for _, op := range m.Operators() {
		found[op] = true
	}
	return found
}

// FlagsFor are the flags of the preset for an output of a model.
func (j *Job) FlagsFor(m *Model, o preset.Output) []string {
	return o.FlagsFor(m.Name, j.Source.ModelType(), m.operators())
}

// atOnce is the number of outputs that are made in one read of a model: each has its structure in
// memory.
const atOnce = 8

// evenly is the size of the groups of n outputs, as few as atOnce allows: even groups take less memory.
func evenly(n int) int {
	groups := max((n+atOnce-1)/atOnce, 1)
	return max((n+groups-1)/groups, 1)
}

// eachModel plans the outputs of each model, from one opened file, and hands those on that can be made.
func (j *Job) eachModel(ctx context.Context, convert bool, do func(outputs []*Output)) error {
	for _, name := range j.Preset.Sources(j.Source.Models) {
		opened, err := onnxq.Open(j.Source.File(name))
		if err != nil {
			j.fail(err)
			j.noteUnreadable(name)
			continue
		}
		err = j.model(ctx, &Model{name, opened}, convert, do)
		opened.Close()
		if err != nil {
			return err
		}
	}
	if j.Settled == nil {
		return nil
	}
	return j.Settled(len(j.report.Outputs))
}

// noteUnreadable notes that a model and its outputs are missing.
func (j *Job) noteUnreadable(model string) {
	j.broken = append(j.broken, model)
	for _, o := range j.Preset.Outputs {
		j.missing = append(j.missing, j.outputName(o, model))
	}
	if j.Preset.Keep {
		j.missing = append(j.missing, j.placed(model))
	}
}

// model makes the outputs of a model, some at once.
func (j *Job) model(ctx context.Context, m *Model, convert bool, do func(outputs []*Output)) error {
	for some := range slices.Chunk(j.Preset.Outputs, evenly(len(j.Preset.Outputs))) {
		outputs := j.outputs(ctx, m, some, convert, do)
		j.Busy.Clear()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if j.full != nil {
			return j.full
		}
		for _, o := range outputs {
			j.finished(o)
		}
	}
	return nil
}

// outputs plans some outputs of a model and hands those on that can be made.
func (j *Job) outputs(ctx context.Context, m *Model, some []preset.Output, convert bool, do func(outputs []*Output)) (outputs []*Output) {
	joint := &jointProgress{tell: j.Busy.Update}
	var planned []*Output
	for _, o := range some {
		if ctx.Err() != nil {
			return nil
		}
		made := &Output{Model: m.Name, Output: j.outputName(o, m.Name)}
		if made.plan, made.err = j.plan(ctx, m, o, joint.part()); made.err == nil {
			planned = append(planned, made)
		}
		outputs = append(outputs, made)
	}
	if len(planned) > 0 {
		if convert {
			j.Busy.Begin()
		}
		do(planned)
	}
	return outputs
}

// plan plans an output of a model. Its conversion reports to converting.
func (j *Job) plan(ctx context.Context, m *Model, o preset.Output, converting func(done, total int64)) (p *onnxq.Plan, err error) {
	if j.Planned != nil {
		defer func() {
			if err == nil {
				j.Planned(m, o, p)
			}
		}()
	}
	opts, err := j.Options(ctx, m, o)
	if err != nil {
		return nil, err
	}
	opts.Progress = converting
	p, err = m.Plan(opts)
	if err != nil || len(o.Weights) == 0 || opts.Precision != nil {
		return p, err
	}
	if opts.Precision, err = o.Precision(weightsOf(m, p)); err != nil || opts.Precision == nil {
		return p, err
	}
	return m.Plan(opts)
}

// weightsOf lists the quantized weights of a plan with their roles.
func weightsOf(m *Model, p *onnxq.Plan) (tensors []preset.Tensor) {
	roles := transformer.Of(m.Graph())
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			tensors = append(tensors, preset.Tensor{Name: t.Name, Nodes: t.Nodes, Consumers: t.Consumers, Role: roles[t.Name]})
		}
	}
	return tensors
}

// write converts a model to outputs in the folder temp, in one read.
func (j *Job) write(ctx context.Context, outputs []*Output, temp string) {
	var all []onnxq.Output
	for _, o := range outputs {
		all = append(all, onnxq.Output{Plan: o.plan, Path: filepath.Join(temp, filepath.FromSlash(o.Output))})
	}
	if err := os.MkdirAll(filepath.Dir(all[0].Path), 0o777); err != nil { // of all of them
		for _, o := range outputs {
			o.err = err
		}
		return
	}
	there := func(name string) string { return strings.Replace(name, temp, j.Out, 1) }
	for i, made := range onnxq.ConvertAll(ctx, all) {
		o, r := outputs[i], made.Report
		if made.Err != nil {
			for _, state := range []string{".~calib", ".~calib.json"} {
				os.Remove(all[i].Path + state)
			}
			o.err = errors.New(strings.ReplaceAll(made.Err.Error(), temp, j.Out))
			if errors.Is(made.Err, syscall.ENOSPC) {
				j.full = fmt.Errorf("%s: no folder is written, because the disk is full: %w", j.Out, o.err)
			}
			continue
		}
		o.plan, o.Report, r.Output = r.Plan, r, there(r.Output)
		if r.Data == "" {
			continue
		}
		for _, data := range append([]string{r.Data}, r.MoreData...) {
			o.data = append(o.data, path.Join(path.Dir(o.Output), filepath.Base(data)))
		}
		r.Data = there(r.Data)
		for i := range r.MoreData {
			r.MoreData[i] = there(r.MoreData[i])
		}
	}
}

// jointProgress adds up the progress of conversions that run together, which tell one at a time.
type jointProgress struct {
	tell  func(done, total int64)
	parts []part
}

// part is how far one of the conversions is.
type part struct{ done, total int64 }

// part adds a conversion, and returns the function that it reports progress to.
func (p *jointProgress) part() func(done, total int64) {
	i := len(p.parts)
	p.parts = append(p.parts, part{})
	return func(done, total int64) {
		p.parts[i] = part{done, total}
		var sum part
		for _, q := range p.parts {
			sum.done, sum.total = sum.done+q.done, sum.total+q.total
		}
		p.tell(sum.done, sum.total)
	}
}
