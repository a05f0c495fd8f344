package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/rules"
	"onnxquant/spec"
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
			return cli.Usagef("--auto chooses the formats: leave out --%s", name)
		}
	}
	f.opts.AllowFallbackOf = []string{"style", "algorithm", "scale-type"} // which may not fit the formats that it chooses
	if f.float16 || f.bfloat16 {
		f.opts.Bits = 4 // which is the default, but these flags alone quantize nothing
	}
	return nil
}

// mix finds the formats of --auto like analyze: with calibration data, by the damage to the outputs.
// out may be "".
func (f *convertFlags) mix(ctx context.Context, c *cli.Console, in, out string) error {
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	fits, err := f.keepFloat(ctx, c, m, out)
	if err != nil || fits {
		return err
	}
	if err := f.spareTime(m); err != nil {
		return err
	}
	if f.opts.Provenance != nil {
		f.opts.Provenance.Brief = true // hashes of tensors would take room from the weights
	}
	opts := analyze.Options{Options: f.opts, MaxSize: f.auto, Output: out}
	data := calibrate.Options{Data: f.paths, Samples: sensitivity.DefaultSamples, Library: f.library}
	a, err := analysis{in, m, opts, data, f.opts.Calibration == nil}.run(ctx, c, f.quiet)
	if err != nil {
		return f.larger(ctx, m, out, err)
	}
	f.opts.Precision = a.Precision
	return nil
}

// spareTime takes algorithm mse where best, which nobody asked for, would take minutes without data: it multiplies
// each weight by itself.
func (f *convertFlags) spareTime(m *onnxq.Model) error {
	const most = 1e11 // multiplications
	if f.implied == "" || f.data != nil {
		return nil
	}
	p, err := m.Plan(f.opts)
	if err != nil {
		return err
	}
	products := 0.0
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			products += float64(t.Bytes) / 4 * float64(t.Shape[t.Axis])
		}
	}
	if products > most {
		f.opts.Algorithm, f.implied = spec.MSE, "mse, which --auto implies for a large model; --algorithm best takes longer"
	}
	return nil
}

// keepFloat leaves all weights in float if the model fits so.
func (f *convertFlags) keepFloat(ctx context.Context, c *cli.Console, m *onnxq.Model, out string) (fits bool, err error) {
	opts := f.opts
	opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: spec.Candidate{Format: spec.Float}.Override()})
	if err != nil {
		return false, err
	}
	size, err := f.size(ctx, m, out, opts)
	if err != nil || size > f.auto {
		return false, err
	}
	f.calibFlags.dropData(&f.opts)
	f.opts.Precision = opts.Precision
	if !f.quiet {
		c.Line("", fmt.Sprintf("the %s model, %s, already fits in %s: nothing needs to be quantized", cmp.Or(string(f.opts.FloatType), "float"), cli.ByteSize(size), cli.ByteSize(f.auto)))
	}
	return true, nil
}

// size is the size of the output with some options.
func (f *convertFlags) size(ctx context.Context, m *onnxq.Model, out string, opts onnxq.Options) (int64, error) {
	p, err := m.Plan(opts)
	if err != nil {
		return 0, err
	}
	size := p.OutBytes
	if out != "" {
		if size, err = p.OutputSize(out); err != nil {
			return 0, err
		}
	}
	beyond, err := analyze.Beyond(ctx, p)
	return size + beyond, err
}

// auto returns the flag for an output of size bytes. The output's record of this flag may be longer
// than that of the SIZE given, so the size includes its digits.
func auto(size int64) string {
	return fmt.Sprintf("--auto %d", size+int64(len(strconv.FormatInt(size, 10))))
}

// larger adds to the error that no mix is as small as asked for what would do.
func (f *convertFlags) larger(ctx context.Context, m *onnxq.Model, out string, err error) error {
	var small *analyze.SizeError
	if !errors.As(err, &small) {
		return err
	}
	possible := auto(small.Least) + " is possible"
	if f.opts.FloatType == "" {
		const flag = " --float16"
		opts := f.opts
		opts.Precision, opts.FloatType, opts.HalfIO = small.Precision, spec.Float16, !f.keepIO
		if opts.Provenance != nil {
			with := *opts.Provenance
			with.Options += flag
			opts.Provenance = &with
		}
		if size, err := f.size(ctx, m, out, opts); err == nil && size < small.Least {
			possible += ", and " + auto(size) + flag
		}
	}
	advice := []string{possible}
	if p, err := m.Plan(f.opts); err == nil && !f.opsGiven {
		advice = append(advice, summary.OpsHint(p)...)
	}
	if f.data == nil {
		advice = append(advice, "with data (--calib) formats of 2 bits are tried, too")
	}
	return fmt.Errorf("%w; %s", err, strings.Join(advice, "; "))
}
