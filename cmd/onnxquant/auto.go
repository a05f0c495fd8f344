package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/onnxq/spec"
)

// settled are the flags that say what --auto finds, or change sizes that it does not know.
var settled = []string{
	"bits", "format", "block", "zero-point", "precision-info", "conv-format",
	"activations", "weights-from",
}

// finishAuto refuses what does not go with --auto.
func (f *convertFlags) finishAuto(fs *pflag.FlagSet) error {
	if f.auto == 0 {
		return nil
	}
	for _, name := range settled {
		if fs.Changed(name) {
			return usagef("--auto chooses the formats: leave out --%s", name)
		}
	}
	if f.float16 || f.bfloat16 {
		f.opts.Bits = 4 // which is the default, but these flags alone quantize nothing
	}
	return nil
}

// mix finds the formats of --auto, as analyze does: by what they do to the outputs if there is
// calibration data. out may be "".
func (f *convertFlags) mix(ctx context.Context, c *console, in, out string) error {
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	fits, err := f.keepFloat(ctx, c, m, out)
	if err != nil || fits {
		return err
	}
	opts := analyze.Options{Options: f.opts, MaxSize: f.auto, Output: out}
	data := calibrate.Options{Data: f.paths, Samples: sensitivity.DefaultSamples, Library: f.library}
	a, err := analysis{in, m, opts, data}.run(ctx, c, f.quiet)
	if err != nil {
		return f.larger(m, err)
	}
	f.opts.Precision = a.Precision
	return nil
}

// keepFloat leaves all weights in float if the model fits so.
func (f *convertFlags) keepFloat(ctx context.Context, c *console, m *onnxq.Model, out string) (fits bool, err error) {
	opts := f.opts
	opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: spec.Candidate{Format: spec.Float}.Override()})
	if err != nil {
		return false, err
	}
	p, err := m.Plan(opts)
	if err != nil {
		return false, err
	}
	size := p.OutBytes
	if out != "" {
		if size, err = p.OutputSize(out); err != nil {
			return false, err
		}
	}
	beyond, err := analyze.Beyond(ctx, p)
	if err != nil || size+beyond > f.auto {
		return false, err
	}
	f.calibFlags.leave(&f.opts)
	f.opts.Precision = opts.Precision
	if !f.quiet {
		c.line("", fmt.Sprintf("the %s model, %s, already fits in %s: nothing needs to be quantized", cmp.Or(string(f.opts.FloatType), "float"), byteSize(size+beyond), byteSize(f.auto)))
	}
	return true, nil
}

// larger adds to the error that no mix is as small as asked for what would do.
func (f *convertFlags) larger(m *onnxq.Model, err error) error {
	var small *analyze.SizeError
	if !errors.As(err, &small) {
		return err
	}
	recorded := len(strconv.FormatInt(small.Least, 10)) // a longer SIZE than was given, in the output's provenance
	advice := []string{fmt.Sprintf("--auto %d is possible", small.Least+int64(recorded))}
	if p, err := m.Plan(f.opts); err == nil && !f.opsGiven {
		advice = append(advice, opsHint(p)...)
	}
	if f.data == nil {
		advice = append(advice, "with data (--calib) formats of 2 bits are tried, too")
	}
	return fmt.Errorf("%w; %s", err, strings.Join(advice, "; "))
}
