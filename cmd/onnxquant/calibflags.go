package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/activations"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/spec"
)

// calibFlags are the flags of calibration data, for algorithms that look at the inputs of layers.
type calibFlags struct {
	paths   []string
	samples int
	library string
	resume  bool
	implied bool              // best is the algorithm because of the data
	data    *activations.Data // nil without calibration
	told    []string          // warnings of the data
	without spec.Algorithm    // of an output of a folder, if its model does not take the data
}

func (f *calibFlags) define(fs *pflag.FlagSet) {
	fs.Var(dataPaths{&f.paths}, "calib",
		"find codes by running the model on `DATA`: .npz, .npy, .pb or\n.jsonl files, a folder of them, or self: a language model makes\nits own samples; may be repeated. Algorithms awq and gptq need\nit; --calib without --algorithm means --algorithm best")
	fs.Var(number[int]{&f.samples, func(n int) bool { return n >= 1 }, "at least 1"}, "samples",
		"how many samples of --calib are used (default 128)")
	fs.BoolVar(&f.resume, "resume", false,
		"go on where --calib was interrupted, with the same output,\nmodel, data and flags")
	fs.StringVar(&f.library, "ort-lib", "", ortLibUsage)
}

// finish checks the flags, and sets what the options need to be checked.
func (f *calibFlags) finish(fs *pflag.FlagSet, o *onnxq.Options, in string) error {
	if len(f.paths) == 0 {
		for _, name := range []string{"samples", "ort-lib", "resume"} {
			if fs.Changed(name) {
				return usagef("--%s is for --calib", name)
			}
		}
		return nil
	}
	f.data = activations.New(in, f.paths, activations.Options{Samples: f.samples, Library: f.library})
	o.Calibration, o.Resume = f.data, f.resume
	return nil
}

// checkPaths refuses data that are not there. It is for folders, where each model may refuse data of others.
func (f *calibFlags) checkPaths() error {
	for _, path := range f.paths {
		if _, err := os.Stat(path); path != "self" && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: there is no such file or folder of data", path)
		}
	}
	return nil
}

// imply sets the algorithm of data for which none is given.
func (f *calibFlags) imply(o *onnxq.Options) {
	if f.implied = f.data != nil && o.Algorithm == "" && calibratable(o); f.implied {
		o.Algorithm = spec.Best
	}
}

// impliedFacts tell what imply has set.
func (f *calibFlags) impliedFacts() []fact {
	if !f.implied {
		return nil
	}
	return []fact{{"algorithm", "best, which --calib implies"}}
}

// check looks for what is wrong with the data.
func (f *calibFlags) check(ctx context.Context) error {
	if f.data == nil {
		return nil
	}
	return f.data.Check(ctx)
}

// open finds the data for a plan, and what runs the model. They are forgotten if no weight is calibrated: to
// make samples takes long.
func (f *calibFlags) open(ctx context.Context, p *onnxq.Plan) error {
	if p.CalibrationCost == nil {
		f.data = nil
		return nil
	}
	return f.data.Open(ctx)
}

// warn tells in what the data may mislead, before they are learned from.
func (f *calibFlags) warn(c *console) (err error) {
	if f.data != nil {
		f.told, err = f.data.Warnings()
		c.warnAll(f.told)
	}
	return err
}

// untold are the warnings of a conversion that warn has not told.
func (f *calibFlags) untold(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return slices.Contains(f.told, w) })
}

// runs says how long the runs of the model will take. What runs for a group of layers ends behind
// them: on average it is half of the model. But values inside of the model are then handed over and looked
// at, which one run of the model does not tell: it took up to 1.7 times as long.
func (f *calibFlags) runs(ctx context.Context, c *onnxq.CalibrationCost) (string, error) {
	if c == nil {
		return "", nil
	}
	t, err := f.data.Time(ctx)
	if err != nil {
		return "", err
	}
	least := math.Ceil(t.Seconds() * float64(c.Runs) / 2)
	return fmt.Sprintf("%.0f to %.0f s for %s of parts of the model over %s", least, 2*least,
		english.Plural(c.Runs, "run", ""), english.Plural(f.data.Len(), "sample", "")), nil
}

// withData says which flag gives the data that an algorithm needs.
func withData(err error) error {
	if errors.Is(err, onnxq.ErrNoData) {
		return fmt.Errorf("%w: --calib DATA, or for a language model --calib self", err)
	}
	return err
}

// resumable says how to go on after an error.
func (f *calibFlags) resumable(err error) error {
	if errors.Is(err, onnxq.ErrKept) {
		return fmt.Errorf("%w; --resume goes on from it", err)
	}
	return err
}

// warnSlow tells what makes calibration fast.
func (f *calibFlags) warnSlow(c *console) {
	if f.data == nil {
		return
	}
	if lacked := f.data.Lacked(); lacked != nil {
		c.warn(calibrate.Slow(lacked))
	}
}

// leave forgets the data: an output is made without them.
func (f *calibFlags) leave(o *onnxq.Options) {
	f.data, o.Calibration = nil, nil
	if o.Algorithm.NeedsData() {
		o.Algorithm = spec.LeastAngle
	}
}

// finishOutput checks the flags of an output of a folder. Unless --algorithm is given on the command line,
// outputs with weights whose codes gptq could find, too, get best, and others are made without the
// data.
func (f *calibFlags) finishOutput(fs *pflag.FlagSet, o *onnxq.Options, given bool) error {
	if err := f.finish(fs, o, ""); err != nil || f.data == nil || given {
		return err
	}
	if !calibratable(o) {
		f.leave(o)
		return nil
	}
	f.without, o.Algorithm = o.Algorithm, spec.Best
	return nil
}

// calibratable reports whether weights get codes that gptq could find, too.
func calibratable(o *onnxq.Options) bool {
	format, _, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
	onlyFloat := o.FloatType != "" && o.Bits == 0 && o.Format == "" && o.Precision == nil
	return err == nil && !onlyFloat && o.Activations != spec.Dynamic && o.Activations != spec.Static && spec.GPTQ.Check(format, o.ZeroPoint, o.Style, o.Range, o.Target) == nil
}
