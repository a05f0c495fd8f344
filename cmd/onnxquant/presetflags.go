package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/folder"
	"onnxquant/internal/preset"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
)

// parse parses the flags of a preset, and then the flags of the command line.
func (j *folderJob) parse(own, args []string) (*convertFlags, error) {
	f, given := &convertFlags{}, (&convertFlags{}).flagSet()
	fs := f.flagSet()
	if err := j.console.App.ParseInOrder(fs, slices.Concat(own, args)); err != nil {
		return nil, err
	}
	if err := j.console.App.ParseInOrder(given, args); err != nil {
		return nil, err
	}
	if err := f.floatType(fs); err != nil {
		return nil, err
	}
	if err := f.finishOutput(fs, given, &f.opts); err != nil {
		return nil, err
	}
	f.onlyCaches(&f.opts)
	if err := f.planFlags.finish(fs); err != nil {
		return nil, err
	}
	for _, name := range []string{"format", "block", "algorithm", "scale-type", "style", "activations", "accuracy-level", "no-fold-bias", "scale-rule"} {
		if !given.Changed(name) && !(name == "format" && given.Changed("bits")) { // it is the preset's, which is for many models
			f.opts.AllowFallbackOf = append(f.opts.AllowFallbackOf, name)
		}
	}
	f.opts.Names, f.opts.Importance = j.flags.opts.Names, j.flags.opts.Importance
	f.opts.Provenance = step("convert", fs, f.noProvenance)
	return f, nil
}

// checkFlags refuses a command line that does not fit an output of the preset. It warns if --target
// replaces the runtime that the preset is made for.
func (j *folderJob) checkFlags() error {
	var replaced []string
	for _, o := range j.Preset.Outputs {
		own := o.FlagsFor("model.onnx", "", nil)
		alone, errAlone := j.parse(own, nil)
		if _, err := j.parse(own, j.args); err != nil {
			return j.explain(o, own, err, errAlone == nil)
		}
		if errAlone == nil && alone.opts.Target != "" && j.flags.opts.Target != "" && alone.opts.Target != j.flags.opts.Target {
			replaced = append(replaced, string(alone.opts.Target))
		}
	}
	if len(replaced) > 0 {
		j.console.Warn(fmt.Sprintf("--target %s replaces --target %s of the preset %s", j.flags.opts.Target, cli.OneAnd(slices.Compact(replaced)), j.flags.preset))
	}
	return nil
}

// explain adds to an error the output of the preset and, if the preset alone is valid, the conflicting
// flags of the command line.
func (j *folderJob) explain(o preset.Output, own []string, err error, inOrder bool) error {
	if j.flags.preset == "" {
		return err
	}
	text := fmt.Sprintf("%s of the preset %s: %v", o.Name("model.onnx"), j.flags.preset, err)
	if !inOrder {
		return cli.Usagef("%s", text)
	}
	fs, unfit := (&convertFlags{}).flagSet(), []string(nil)
	if err := j.console.App.Parse(fs, j.args); err != nil {
		return err
	}
	fs.Visit(func(f *pflag.Flag) {
		var one []string
		for _, value := range f.Annotations[cli.Given] {
			one = append(one, "--"+f.Name+"="+value)
		}
		if _, err := j.parse(own, one); err != nil {
			unfit = append(unfit, "--"+f.Name)
		}
	})
	if len(unfit) > 0 {
		text += "; leave out " + cli.OneAnd(unfit)
	}
	return cli.Usagef("%s", text)
}

// options returns the options of an output of a model.
func (j *folderJob) options(ctx context.Context, m *folder.Model, o preset.Output) (opts onnxq.Options, err error) {
	f, err := j.parse(j.FlagsFor(m, o), j.args)
	if err != nil {
		return opts, err
	}
	if err := onnxq.CheckDims(j.Source.File(m.Name), f.opts.FixDims); err != nil {
		return opts, err
	}
	scales, err := j.cacheScales(ctx, m.Name) // it may refuse the model, before longer work
	if err != nil {
		return opts, err
	}
	f.opts.Calibrating, f.opts.Tuning, f.opts.Notify = j.bar.Calibrating, j.bar.Tuning, j.bar.Warn
	switch {
	case f.fitted:
		if err := j.fit(ctx, f, m.Name, o); err != nil {
			return opts, err
		}
	case f.opts.Calibration != nil:
		data, err := j.calibration(ctx, m.Name)
		if err != nil {
			return opts, err
		}
		if data != nil {
			f.opts.Calibration = data
		} else {
			f.dropData(&f.opts)
			f.opts.Algorithm = cmp.Or(f.without, f.opts.Algorithm)
		}
	}
	f.opts.CacheScales = scales
	return f.opts, f.readWeights(j.console, m.Model)
}

// cacheScales finds the scales of the key-value caches of a model; nil if it has none, of which a warning tells.
func (j *folderJob) cacheScales(ctx context.Context, model string) (map[string][]float32, error) {
	if j.flags.cache == "" || j.flags.dryRun {
		return nil, nil
	}
	if found, known := j.scales[model]; known {
		return found, nil
	}
	data, err := j.calibration(ctx, model)
	if err != nil || data == nil {
		return nil, err
	}
	found, err := data.CacheScales(ctx, j.flags.cache)
	if errors.Is(err, calibrate.ErrNoCache) {
		j.console.Warn(fmt.Sprintf("%s: %v", cli.Printable(model), err))
		err = nil
	}
	j.scales[model] = found
	return found, err
}

// calibration returns the samples for a model, nil if it does not take the data: a warning tells.
func (j *folderJob) calibration(ctx context.Context, model string) (*calibrate.Data, error) {
	data, known := j.data[model]
	if known {
		return data, nil
	}
	f, err := j.dataFor(ctx, model)
	if err == nil && !j.flags.dryRun {
		err = f.data.Open(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		f.data = nil
		j.console.Warn(fmt.Sprintf("%s is not calibrated: %v", cli.Printable(model), err))
	}
	if !j.flags.dryRun && !j.flags.quiet && !sensitivity.Fits(j.flags.opts) { // else fit warns
		f.warnSlow(j.console)
	}
	j.data[model] = f.data
	return f.data, nil
}

// dataFor chooses the data of a model.
func (j *folderJob) dataFor(ctx context.Context, model string) (f calibFlags, err error) {
	o := calibrate.Options{Samples: j.flags.samples, Library: j.flags.library}
	f.paths, err = j.Source.DataFor(model, j.flags.paths, func(paths []string) error {
		o.Data = paths
		f.data = calibrate.New(j.Source.File(model), o)
		return f.check(ctx)
	})
	return f, err
}

// fit finds which activations and operators of an output stay in float, and ranges.
func (j *folderJob) fit(ctx context.Context, f *convertFlags, model string, o preset.Output) error {
	found, err := j.dataFor(ctx, model)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("no data of --calib fit it: %w", err)
	}
	f.paths, j.data[model] = found.paths, found.data
	if !j.flags.quiet && !j.flags.dryRun {
		fmt.Fprintf(j.console.Stderr, "%-40s data %s\n", cli.Printable(model), strings.Join(f.paths, ", "))
	}
	state := ""
	if !j.flags.dryRun {
		state = filepath.Join(stateOf(j.Out), url.PathEscape(o.Name(model)))
	}
	if err := f.fitActivations(ctx, j.console, j.Source.File(model), o.Name(model), state); err != nil {
		return err
	}
	j.fits[o.Name(model)] = f.fit
	return nil
}
