package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/onnxq/spec"
)

// settled are the flags that say what --auto finds, or change sizes that it does not know.
var settled = []string{
	"bits", "format", "block", "zero-point", "precision-info", "conv-format",
	"activations", "float16", "bfloat16", "weights-from",
}

// finishAuto refuses what does not go with --auto, and sets the algorithm if none is given.
func (f *convertFlags) finishAuto(fs *pflag.FlagSet) error {
	if f.auto == 0 {
		return nil
	}
	for _, name := range settled {
		if fs.Changed(name) {
			return usagef("--auto chooses the formats: leave out --%s", name)
		}
	}
	if f.data != nil && f.opts.Algorithm == "" {
		f.opts.Algorithm = spec.Best
	}
	return nil
}

// mix finds the formats of --auto, as analyze does: by what they do to the outputs if there is
// calibration data.
func (f *convertFlags) mix(ctx context.Context, c *console, in string) error {
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	opts := analyze.Options{Options: f.opts, MaxSize: f.auto}
	data := calibrate.Options{Data: f.paths, Samples: sensitivity.DefaultSamples, Library: f.library}
	a, err := analyzed(ctx, c, m, in, opts, data, f.quiet)
	if err != nil {
		return err
	}
	f.opts.Precision = a.Precision
	if a.OutBytes >= a.FloatBytes && a.FloatBytes <= f.auto && !f.quiet {
		c.line("", fmt.Sprintf("the float model, %s, already fits in %s: nothing needs to be quantized", byteSize(a.FloatBytes), byteSize(f.auto)))
	}
	return nil
}
