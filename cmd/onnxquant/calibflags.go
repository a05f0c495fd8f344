package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/rules"
	"onnxquant/spec"
)

// calibFlags are the flags of calibration data, for algorithms that look at the inputs of layers.
type calibFlags struct {
	paths   []string
	samples int
	library string
	resume  bool
	object  string // that the output becomes; "": it is a file
	store   string // folder with the codes of shares
	steps   int
	implied string          // the algorithm that is the default because of a flag, and which flag; or ""
	data    *calibrate.Data // nil without calibration
	told    []string        // warnings of the data
	fitted  bool            // data decide about activations; for an output of a folder, if the command line asks for it
	without spec.Algorithm  // of an output of a folder, if its model does not take the data
	fit     *sensitivity.Fit
	limits  sensitivity.Limits
	codes   spec.Algorithm // of weights beside static activations, or ""
	uneven  bool           // channels are not balanced
	share   spec.Share
	levels  levelFlags
	cache   spec.KVCache // what key-value caches become, or ""
}

func (f *calibFlags) define(fs *pflag.FlagSet) {
	fs.Var(specvalue.DataPaths{To: &f.paths}, "calib",
		"find codes by running the model on `DATA`: .npz, .npy, .pb or\n.jsonl files, a folder of them, or self: a language model makes\nits own samples; may be repeated. Algorithms awq and gptq need\nit; --calib without --algorithm means --algorithm best. With\n--activations static or dynamic: find ranges, and what stays\nin float; with --accuracy-level auto: find levels; codes then\nonly with --algorithm gptq or best")
	cli.AlsoData(fs, "calib")
	fs.Var(cli.Number[int]{Value: &f.samples, Valid: func(n int) bool { return n >= 1 }, Want: "at least 1"}, "samples", "how many samples of --calib are used (default 128)")
	fs.Var(cli.Choice[spec.KVCache]{Value: &f.cache, Allowed: spec.KVCaches(), Kind: "TYPE"}, "kv-cache",
		"with --calib: key-value caches of OUT have codes of 8 bits, a\nquarter of the memory of float32, with a scale for each cache\n(int8), each head (int8:per-head) or each channel of a head\n(int8:per-channel), from the data; weights as without")
	fs.Var(cli.Optional{To: &f.limits.KL, Kind: "E"}, "max-kl",
		"with --activations static or dynamic, and --calib: the largest\nmean KL divergence of OUT's distributions on held-out samples;\nwhat costs most stays in float until the limit holds")
	fs.Var(cli.Optional{To: &f.limits.SQNR, Kind: "DB"}, "min-sqnr", "the same for the least SQNR of an output")
	fs.Var(cli.Optional{To: &f.limits.Drop, Kind: "SHARE"}, "max-drop",
		"the same for the share of held-out rows with another largest\nclass, such as 1%; also with --accuracy-level auto (default 0)")
	fs.BoolVar(&f.uneven, "no-balance", false,
		"with --activations static --calib, do not divide channels of\nactivations by factors that weights compensate")
	fs.Var(cli.Number[int]{Value: &f.steps, Valid: func(n int) bool { return n >= 1 }, Want: "at least 1"}, "tune",
		"with --calib: tune the scales of all layers together, by\ngradients of the model's outputs, in `STEPS` steps of 8 samples\n(default 128)")
	fs.Lookup("tune").NoOptDefVal = strconv.Itoa(onnxq.DefaultTune)
	fs.BoolVar(&f.resume, "resume", false,
		"go on where --calib was interrupted, with the same output,\nmodel, data and flags; of folders, with --activations static\nor dynamic only")
	fs.StringVar(&f.store, "calib-store", "",
		"with --algorithm gptq --calib: take the codes of all layers\nfrom `FOLDER`, where --calib-shard has put them")
	fs.Var(specvalue.Share{To: &f.share}, "calib-shard",
		"find the codes of share `I/N` of the layers, put them into the\nfolder of --calib-store, and write no OUT; I is 0 to N-1")
	fs.StringVar(&f.library, "ort-lib", "", ortLibUsage)
}

// finish checks the flags, and sets the options that checks need.
func (f *calibFlags) finish(fs *pflag.FlagSet, o *onnxq.Options, in string) error {
	fits := sensitivity.Fits(*o) && len(f.paths) > 0
	static := fits && o.Activations == spec.Static
	if err := f.checkLevels(fits); err != nil {
		return err
	}
	limits := f.limits
	if f.levels.auto {
		limits.Drop = nil
	}
	switch {
	case limits != (sensitivity.Limits{}) && !fits:
		return cli.Usagef("--max-kl, --min-sqnr and --max-drop are for --activations static or dynamic with --calib")
	case f.uneven && !static:
		return cli.Usagef("--no-balance is for --activations static with --calib")
	}
	o.NoBalance = f.uneven
	if len(f.paths) == 0 {
		for _, name := range []string{"samples", "ort-lib", "resume", "calib-store", "calib-shard", "tune", "kv-cache"} {
			if fs.Changed(name) && (name != "ort-lib" || !fs.Changed("max-slowdown")) {
				return cli.Usagef("--%s is for --calib; add --calib DATA", name)
			}
		}
		return nil
	}
	f.data = calibrate.New(in, calibrate.Options{Data: f.paths, Samples: f.samples, Library: f.library})
	if static {
		o.Ranges = &rules.Ranges{} // until fitActivations finds them
		if o.Algorithm == spec.AWQ {
			return cli.Usagef("--algorithm awq is not for --activations static; gptq and best find codes there")
		}
		if f.codes = o.Algorithm; o.Algorithm.NeedsData() {
			o.Algorithm = "" // until fitActivations
		}
		return cli.LeaveOut(fs, "with --activations static, --calib finds ranges", "ranges", "calib-store", "calib-shard", "tune")
	}
	if fits {
		return cli.LeaveOut(fs, "with --activations dynamic, --calib finds no codes", "calib-store", "calib-shard")
	}
	if f.levels.auto && !o.Algorithm.Calibrated() {
		f.data = nil // prepareLevels opens them
		if o.Algorithm == "" && calibratable(o) {
			f.implied = "rtn: --accuracy-level auto takes the data for levels alone; with --algorithm gptq or best, --calib finds codes, too"
		}
		return cli.LeaveOut(fs, "with --accuracy-level auto, --calib finds codes only with --algorithm awq, gptq or best", "resume", "calib-store", "tune")
	}
	if f.share.N > 0 && f.store == "" {
		return cli.Usagef("--calib-shard needs --calib-store FOLDER, which all shares use")
	}
	o.Calibration, o.Resume, o.CalibrationStore, o.Tune = f.data, f.resume, f.store, f.steps
	return nil
}

// checkPaths refuses missing data files. It is for folders, where data may suit some models only.
func (f *calibFlags) checkPaths() error {
	for _, path := range f.paths {
		if _, err := os.Stat(path); path != "self" && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: there is no such file or folder of data", path)
		}
	}
	return nil
}

// imply sets the algorithm of data, or of a mix, for which none is given.
func (f *calibFlags) imply(o *onnxq.Options, mix bool) {
	if (f.data != nil || mix) && o.Algorithm == "" && calibratable(o) {
		o.Algorithm, f.implied = spec.Best, "best, which --calib implies"
		if f.data == nil {
			f.implied = "best, which --auto implies"
		}
	}
}

// impliedFacts explains the settings made by imply.
func (f *calibFlags) impliedFacts() []cli.Fact {
	if f.implied == "" {
		return nil
	}
	return []cli.Fact{{Label: "algorithm", Text: f.implied}}
}

// onlyCaches keeps the data from the algorithm, if key-value caches need them and the algorithm does not take them.
func (f *calibFlags) onlyCaches(o *onnxq.Options) {
	if f.cache != "" && !o.Algorithm.Calibrated() && (o.Algorithm != "" || !calibratable(o)) {
		o.Calibration, o.Tune = nil, 0
	}
}

// cacheScales finds the scales of key-value caches; nil if they stay floats.
func (f *calibFlags) cacheScales(ctx context.Context) (map[string][]float32, error) {
	if f.cache == "" || f.data == nil {
		return nil, nil
	}
	return f.data.CacheScales(ctx, f.cache)
}

// check finds problems of the data.
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

// measure lets a plan say what calibration takes. A model does not make its samples for that; if it cannot run, to convert
// it will fail.
func (f *calibFlags) measure(ctx context.Context, p *onnxq.Plan) error {
	if p.CalibrationCost == nil {
		f.data = nil
		return nil
	}
	err := f.data.Suppose(ctx)
	switch {
	case err == nil:
		p.MeasureCalibration(ctx)
	case slices.Contains(f.paths, calibrate.Self) && ctx.Err() == nil:
		return nil
	}
	return err
}

// warn prints warnings about misleading data, before the calibration.
func (f *calibFlags) warn(c *cli.Console) (err error) {
	if f.data != nil {
		f.told, err = f.data.Warnings()
		c.WarnAll(f.told)
	}
	return err
}

// untold are the warnings of a conversion that warn has not told.
func (f *calibFlags) untold(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return slices.Contains(f.told, w) })
}

// withHint says which flag an error is about.
func withHint(err error) error {
	if errors.Is(err, onnxq.ErrNoData) {
		return fmt.Errorf("%w: --calib DATA, or for a language model --calib self", err)
	}
	if errors.Is(err, onnxq.ErrFallback) {
		return cli.Refuse(fmt.Errorf("%w; --allow-fallback permits that", err))
	}
	return err
}

// resumeHint ends errors after which progress is kept.
const resumeHint = "; --resume continues from there"

// resumable says how to go on after an error.
func (f *calibFlags) resumable(err error) error {
	if f.object == "" && errors.Is(err, onnxq.ErrKept) {
		return fmt.Errorf("%w%s", err, resumeHint)
	}
	return err
}

// warnSlow suggests ONNX Runtime for a faster calibration.
func (f *calibFlags) warnSlow(c *cli.Console) {
	if f.data == nil {
		return
	}
	if lacked := f.data.Lacked(); lacked != nil {
		c.Warn(calibrate.Slow(lacked))
	}
}

// dropData forgets the data: an output is made without them.
func (f *calibFlags) dropData(o *onnxq.Options) {
	f.data, o.Calibration, o.Tune = nil, nil, 0
	if o.Algorithm.NeedsData() {
		o.Algorithm = spec.MSE
	}
}

// finishOutput checks the flags of an output of a folder. given are those of the command line. Unless they have --algorithm,
// outputs with weights that gptq supports get best. The others are made without the data.
func (f *calibFlags) finishOutput(fs, given *pflag.FlagSet, o *onnxq.Options) error {
	if err := f.finish(fs, o, ""); err != nil || f.data == nil {
		return err
	}
	if f.fitted = given.Changed("activations") && sensitivity.Fits(*o); f.fitted || given.Changed("algorithm") {
		return nil
	}
	if !calibratable(o) {
		f.dropData(o)
		return nil
	}
	f.without, o.Algorithm = o.Algorithm, spec.Best
	return nil
}

// calibratable reports whether weights get codes that gptq could find, too.
func calibratable(o *onnxq.Options) bool {
	format, _, err := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
	onlyFloat := o.FloatType != "" && o.Bits == 0 && o.Format == "" && o.Precision == nil
	return err == nil && !onlyFloat && o.Activations != spec.Dynamic && o.Activations != spec.Static && spec.GPTQ.Check(format, o.ZeroPoint, o.Style, o.Range) == nil
}

// fitActivations finds which activations and operators of the output of that name stay in float, and ranges. state is a folder for what
// it measures, or "".
func (f *convertFlags) fitActivations(ctx context.Context, c *cli.Console, in, name, state string) (err error) {
	bar := cli.NewProgress(c, f.quiet)
	f.opts.Fold = f.opts.Fold || !f.noFold && f.opts.ScalePerChannel()
	o := f.opts
	if o.Activations == spec.Static {
		o.Algorithm = f.codes
	}
	o.Resume, o.Notify = f.resume, func(text string) { bar.Warn(cli.Printable(name) + ": " + text) }
	f.fit, err = sensitivity.FitActivations(ctx, in, o, calibrate.Options{Data: f.paths, Samples: f.samples, Library: f.library, Progress: bar.Step}, f.limits, state, buildVersion())
	bar.Clear()
	if err == nil {
		var warnings []string
		f.opts, warnings = f.fit.Options()
		f.data = nil
		c.WarnAll(warnings)
	}
	return f.resumable(err)
}

// stateOf is the folder for what is measured for an output, "" for none.
func stateOf(out string) string {
	if out == "" {
		return ""
	}
	return out + ".~calib.activations"
}

// findShare finds the codes of a share of the layers.
func (f *convertFlags) findShare(ctx context.Context, c *cli.Console, p *onnxq.Plan, out string) error {
	found, err := p.FindShare(ctx, out, f.share)
	if err == nil && !f.quiet {
		cli.PrintFacts(c.Stderr, []cli.Fact{{Label: "share", Text: fmt.Sprintf("%d of %d: %v", f.share.I, f.share.N, found)}})
	}
	return err
}
