package main

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
	"onnxquant/onnxq"
)

// atOnce is the number of outputs that are made in one read of a model: each has its structure in
// memory.
const atOnce = 8

// each plans the outputs of each model, from one opened file, and hands those on that can be made.
// What fails is named, and the others follow.
func (j *folderJob) each(ctx context.Context, do func(outputs []*folderOutput)) error {
	bar := newProgress(j.console, j.flags.quiet)
	for _, model := range j.preset.Sources(j.source.Models) {
		m, err := onnxq.Open(j.source.File(model))
		if err != nil {
			j.fail(err)
			j.broken = append(j.broken, model)
			for _, o := range j.preset.Outputs {
				j.missing = append(j.missing, o.Name(model))
			}
			if j.preset.Keep {
				j.missing = append(j.missing, model)
			}
			continue
		}
		for some := range slices.Chunk(j.preset.Outputs, atOnce) {
			outputs := j.make(ctx, openModel{model, m, bar}, some, do)
			bar.clear()
			if ctx.Err() != nil {
				m.Close()
				return context.Cause(ctx)
			}
			if j.full != nil {
				m.Close()
				return j.full
			}
			for _, o := range outputs {
				j.tell(o)
			}
		}
		m.Close()
	}
	return j.checkCalibrated()
}

// checkCalibrated is an error if there are data, and no output was made with them: then all of --calib
// was in vain, as for a single model that does not take its data.
func (j *folderJob) checkCalibrated() error {
	for _, data := range j.data {
		if data != nil {
			return nil
		}
	}
	if len(j.flags.paths) == 0 || len(j.Outputs) == 0 {
		return nil
	}
	return errors.New("--calib: no model takes the data, or none gets integer codes, so no folder is written; leave --calib out to convert without data")
}

// openModel is a model of a folder.
type openModel struct {
	name string
	*onnxq.Model
	bar *progress
}

// make plans some outputs of a model and hands those on that can be made.
func (j *folderJob) make(ctx context.Context, m openModel, some []preset.Output, do func(outputs []*folderOutput)) (outputs []*folderOutput) {
	joint := &jointProgress{tell: m.bar.update}
	var planned []*folderOutput
	for _, o := range some {
		if ctx.Err() != nil {
			return nil
		}
		made := &folderOutput{Model: m.name, Output: o.Name(m.name)}
		if made.plan, made.err = j.planned(ctx, m, o, joint.part()); made.err == nil {
			planned = append(planned, made)
		}
		outputs = append(outputs, made)
	}
	if len(planned) > 0 {
		if !j.flags.dryRun {
			m.bar.begin()
		}
		do(planned)
	}
	return outputs
}

// write converts a model to outputs in the folder temp, in one read.
func (j *folderJob) write(ctx context.Context, outputs []*folderOutput, temp string) {
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
	there := func(name string) string { return strings.Replace(name, temp, j.out, 1) }
	for i, made := range onnxq.ConvertAll(ctx, all) {
		o, r := outputs[i], made.Report
		if made.Err != nil {
			for _, state := range []string{".~calib", ".~calib.json"} {
				os.Remove(all[i].Path + state)
			}
			o.err = errors.New(strings.ReplaceAll(made.Err.Error(), temp, j.out))
			if errors.Is(made.Err, syscall.ENOSPC) {
				j.full = fmt.Errorf("%s: no folder is written, for the disk is full: %w", j.out, o.err)
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
