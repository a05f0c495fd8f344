package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"onnxquant/internal/access"
	"onnxquant/internal/preset"
	"onnxquant/internal/role"
	"onnxquant/onnxq"
	"onnxquant/onnxq/activations"
)

// planned plans an output of a model. Its conversion reports to converting.
func (j *folderJob) planned(ctx context.Context, m openModel, o preset.Output, converting func(done, total int64)) (*onnxq.Plan, error) {
	f, err := j.parse(o.FlagsFor(m.name, j.source.ModelType(), operators(m.Model)), j.args)
	if err != nil {
		return nil, err
	}
	f.opts.Progress, f.opts.Calibrating, f.opts.Notify = converting, m.bar.calibrating, m.bar.warn
	if f.data != nil {
		data, err := j.calibration(ctx, m.name)
		if err != nil {
			return nil, err
		}
		if data != nil {
			f.opts.Calibration = data
		} else {
			f.leave(&f.opts)
			f.opts.Algorithm = cmp.Or(f.without, f.opts.Algorithm)
		}
	}
	if err := f.readWeights(j.console, m.Model); err != nil {
		return nil, err
	}
	p, err := m.Plan(f.opts)
	if err == nil && len(o.Weights) > 0 && f.opts.Precision == nil {
		p, err = replanned(m.Model, p, o, f.opts)
	}
	return p, err
}

// calibration returns the samples for a model, nil if it does not take the data: a warning tells.
func (j *folderJob) calibration(ctx context.Context, model string) (*activations.Data, error) {
	if j.data == nil {
		j.data = map[string]*activations.Data{}
	}
	data, known := j.data[model]
	if known {
		return data, nil
	}
	o := activations.Options{Samples: j.flags.samples, Library: j.flags.library}
	f := calibFlags{data: activations.New(j.source.File(model), j.flags.paths, o)}
	err := f.check(ctx)
	if err == nil && !j.flags.dryRun {
		err = f.data.Open(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		f.data = nil
		j.console.warn(fmt.Sprintf("%s is not calibrated: %v", printable(model), err))
	}
	if !j.flags.dryRun && !j.flags.quiet {
		f.warnSlow(j.console)
	}
	j.data[model] = f.data
	return f.data, nil
}

// replanned plans again with the settings of a preset for single weights.
func replanned(m *onnxq.Model, p *onnxq.Plan, o preset.Output, opts onnxq.Options) (*onnxq.Plan, error) {
	var tensors []preset.Tensor
	roles := role.Of(access.Graph(m))
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			tensors = append(tensors, preset.Tensor{Name: t.Name, Nodes: t.Nodes, Consumers: t.Consumers, Role: roles[t.Name]})
		}
	}
	var err error
	if opts.Precision, err = o.Precision(tensors); err != nil || opts.Precision == nil {
		return p, err
	}
	return m.Plan(opts)
}

// operators returns the operators of a model.
func operators(m *onnxq.Model) map[string]bool {
	found := map[string]bool{}
	for _, op := range m.Operators() {
		found[op] = true
	}
	return found
}

// parse parses the flags of a preset, and then those of the command line.
func (j *folderJob) parse(flags, args []string) (*convertFlags, error) {
	f := &convertFlags{}
	fs := f.flagSet()
	if err := parseInOrder(fs, slices.Concat(flags, args)); err != nil {
		return nil, err
	}
	if err := f.floatType(fs); err != nil {
		return nil, err
	}
	if err := f.finishOutput(fs, &f.opts, isGiven("algorithm", args)); err != nil {
		return nil, err
	}
	if err := f.planFlags.finish(fs); err != nil {
		return nil, err
	}
	f.opts.Names, f.opts.Importance = j.flags.opts.Names, j.flags.opts.Importance
	f.opts.Provenance = step("convert", fs, f.noProvenance)
	return f, nil
}

// isGiven reports whether a flag is on a command line.
func isGiven(name string, args []string) bool {
	fs := (&convertFlags{}).flagSet()
	return parseFlags(fs, args) == nil && fs.Changed(name)
}

// explain names the output of a preset that an error is about, and the flags of the command line
// that it cannot have.
func (j *folderJob) explain(o preset.Output, err error) error {
	flags := o.FlagsFor("model.onnx", "", nil)
	text := fmt.Sprintf("%s of the preset %s: %v", o.Name("model.onnx"), j.flags.preset, err)
	if _, err := j.parse(flags, nil); err != nil {
		return usagef("%s", text)
	}
	fs, unfit := (&convertFlags{}).flagSet(), []string(nil)
	if err := parseFlags(fs, j.args); err != nil {
		return err
	}
	fs.Visit(func(f *pflag.Flag) {
		var one []string
		for _, value := range f.Annotations[given] {
			one = append(one, "--"+f.Name+"="+value)
		}
		if _, err := j.parse(flags, one); err != nil {
			unfit = append(unfit, "--"+f.Name)
		}
	})
	if len(unfit) > 0 {
		text += "; leave out " + oneAnd(unfit)
	}
	return usagef("%s", text)
}

// warnOfTarget tells that --target replaces another runtime, which a preset is made for.
func (j *folderJob) warnOfTarget() {
	var replaced []string
	for _, o := range j.preset.Outputs {
		var f convertFlags
		if parseInOrder(f.flagSet(), o.FlagsFor("model.onnx", "", nil)) != nil {
			continue
		}
		if own, given := f.opts.Target, j.flags.opts.Target; own != "" && given != "" && own != given {
			replaced = append(replaced, string(own))
		}
	}
	if len(replaced) > 0 {
		j.console.warn(fmt.Sprintf("--target %s replaces --target %s of the preset %s", j.flags.opts.Target, oneAnd(slices.Compact(replaced)), j.flags.preset))
	}
}
