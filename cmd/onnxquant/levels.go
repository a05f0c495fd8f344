package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
)

// levelFlags are --accuracy-level auto, and what it finds.
type levelFlags struct {
	auto  bool
	found *sensitivity.Levels
}

// define has the flag --accuracy-level, which is defined, take auto, too.
func (f *levelFlags) define(fs *pflag.FlagSet, o *onnxq.Options) {
	flag := fs.Lookup("accuracy-level")
	flag.Value = specvalue.AccuracyLevel{To: &o.AccuracyLevel, Auto: &f.auto}
	flag.Usage += ";\nauto, with --calib: 4, and 1 for those products whose 4 gives\nheld-out samples other classes; summary and --json name them"
}

// prepareLevels opens the data for levels, and holds out samples. The rest of them is for codes.
func (f *convertFlags) prepareLevels(ctx context.Context, in string, bar *cli.Progress) (err error) {
	if !f.levels.auto {
		return nil
	}
	drop := 0.0
	if f.limits.Drop != nil {
		drop = *f.limits.Drop
	}
	f.levels.found, err = sensitivity.NewLevels(ctx, in, calibrate.Options{Data: f.paths, Samples: f.samples, Library: f.library, Progress: bar.Step}, drop)
	if err != nil {
		return err
	}
	f.opts.FindLevels = func(ctx context.Context, path string, weights map[string]string) (map[string]spec.AccuracyLevel, error) {
		levels, err := f.levels.found.Find(ctx, path, weights)
		if err == nil && f.levels.found.Found.Of == 0 && !f.opts.AllowFallback {
			err = withHint(fmt.Errorf("%w: accuracy-level auto: no product of OUT is a MatMulNBits: add --style nbits", onnxq.ErrFallback))
		}
		return levels, err
	}
	if f.opts.Calibration != nil {
		f.data = f.levels.found.Rest()
		f.opts.Calibration = f.data
	}
	return nil
}

// note has the plan say what was found.
func (f *levelFlags) note(p *onnxq.Plan) {
	if f.found != nil {
		p.Levels = &f.found.Found
	}
}

// close ends what prepareLevels began.
func (f *levelFlags) close() {
	if f.found != nil {
		f.found.Close()
	}
}

// checkLevels refuses what does not go with --accuracy-level auto.
func (f *calibFlags) checkLevels(fits bool) error {
	switch {
	case !f.levels.auto:
		return nil
	case len(f.paths) == 0:
		return cli.Usagef("--accuracy-level auto needs --calib DATA, or for a language model --calib self")
	case fits:
		return cli.Usagef("--accuracy-level auto is for weights that are decoded, not for --activations static and dynamic")
	case f.cache != "":
		return cli.Usagef("--accuracy-level auto does not go with --kv-cache: find levels first, then convert OUT with --kv-cache")
	case f.share.N > 0:
		return cli.Usagef("--calib-shard writes no OUT, so --accuracy-level auto has nothing to run")
	}
	return nil
}
