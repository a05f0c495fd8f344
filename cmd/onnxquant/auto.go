package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
)

// settled are the flags that say what --auto finds, or change sizes that it does not know.
var settled = []string{
	"bits", "format", "block", "zero-point", "algorithm", "precision-info", "conv-format",
	"activations", "float16", "bfloat16", "weights-from",
}

// checkAuto refuses what does not go with --auto.
func (f *convertFlags) checkAuto(fs *pflag.FlagSet) error {
	for _, name := range settled {
		if f.auto > 0 && fs.Changed(name) {
			return usagef("--auto chooses the formats: leave out --%s", name)
		}
	}
	return nil
}

// mix finds the formats of --auto, as analyze does.
func (f *convertFlags) mix(ctx context.Context, c *console, in string) error {
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	bar := newProgress(c, f.quiet)
	opts := analyze.Options{Options: f.opts, MaxSize: f.auto}
	opts.Progress = bar.update
	bar.begin()
	a, err := analyze.Model(ctx, m, opts)
	bar.clear()
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	f.opts.Precision = a.Precision
	return nil
}
