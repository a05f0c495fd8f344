package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"onnxquant/calib"
	"onnxquant/onnxq/calibrate"
)

type calibrateFlags struct {
	method    string
	bits      int
	zeroPoint bool
	axis      int
	name      string
	perAxis   bool

	run            calibrate.Options // for a model
	out            string
	imatrix, names string

	json, quiet, help bool
}

// These flags are for models, or for arrays.
var (
	modelFlags = []string{"out", "imatrix", "names", "samples", "length", "seed", "engine", "ort-lib"}
	arrayFlags = []string{"axis", "name"}
)

func (f *calibrateFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	f.bits = 8
	r := &f.run
	fs.Var(dataPaths{&r.Data}, "data",
		"run MODEL on `DATA`: .npz, .npy, .pb or .jsonl files, a folder\nof them, or self: a language model makes its own samples;\nmay be repeated")
	fs.StringVarP(&f.out, "out", "o", "", "write the ranges to `FILE`, for --ranges (default: print them)")
	fs.StringVar(&f.imatrix, "imatrix", "", "write the importance of columns to `FILE`, for --imatrix and\nllama.cpp; without --out no ranges are found")
	fs.StringVar(&f.names, "names", "", "JSON `FILE` that maps names of weights to names in the file\nof --imatrix")
	defineData(fs, r, calibrate.DefaultSamples)
	fs.StringVar(&f.method, "range", "",
		"range method `NAME`: minmax, percentile:P,\nmoving-average:P, entropy or mse (default minmax)")
	fs.Var(number[int]{&f.bits, func(n int) bool { return n >= 2 && n <= 16 }, "2 to 16"}, "bits",
		"bits of a code, 2 to 16 (default 8)")
	fs.BoolVar(&f.zeroPoint, "zero-point", false, "asymmetric codes: unsigned, with a zero point")
	fs.IntVar(&f.axis, "axis", 0, "one range per channel along axis `N`; a negative axis counts\nfrom the last")
	fs.StringVar(&f.name, "name", "", "treat all arrays as batches of one tensor, `NAME`")
	fs.BoolVar(&f.json, "json", false, "print the ranges as JSON, also with --out")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, helpUsage)
	return fs
}

// defineData defines the flags of data besides their own.
func defineData(fs *pflag.FlagSet, r *calibrate.Options, samples int) {
	fs.Var(number[int]{&r.Samples, func(n int) bool { return n >= 1 }, "1 or more"}, "samples", fmt.Sprintf("samples to use, `N` (default %d)", samples))
	fs.Var(number[int]{&r.Length, func(n int) bool { return n >= 2 }, "2 or more"}, "length", fmt.Sprintf("token ids of a sample that the model makes, `N` (default %d)", calibrate.DefaultLength))
	fs.Uint64Var(&r.Seed, "seed", 0, "seed `N` of samples that the model makes (default 0)")
	fs.Var(choice[string]{&r.Engine, calibrate.Engines, "ENGINE"}, "engine", "runtime: ort (ONNX Runtime), go, or auto: ort, else go\n(default auto)")
	fs.StringVar(&r.Library, "ort-lib", "", "shared library of ONNX Runtime, a `FILE` (default: search\nthe usual places)")
}

func calibrateCommand() command {
	return command{
		name: "calibrate", summary: "find ranges of activations, of a model or of arrays",
		args:    []string{"[flags] --data DATA MODEL", "[flags] FILE..."},
		example: "model.onnx",
		text: `Runs MODEL on data and finds the ranges of its activations, for static quantization:
--activations static --ranges FILE. Activations are observed and not kept.

Without --data, finds the ranges of arrays in .npy and .npz files, and prints ranges,
scales and zero points as JSON. Arrays with the same name are batches of one tensor; an
array in an .npy file has the name of the file. Files are read as streams.
`,
		flags: func() *pflag.FlagSet { return new(calibrateFlags).flagSet() },
		run:   runCalibrate,
	}
}

func runCalibrate(ctx context.Context, c *console, args []string) error {
	var f calibrateFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.help("calibrate")
	}
	f.perAxis = fs.Changed("axis")
	method, err := calib.ParseMethod(cmp.Or(f.method, "minmax"))
	if err != nil {
		return usagef("--%v", err)
	}
	scheme := calib.Scheme{Bits: f.bits, Symmetric: !f.zeroPoint}
	if _, err := method.Observer(scheme, tensorPrecision); err != nil {
		return usagef("--range %v", err)
	}
	other, why := modelFlags, "--%s is for a model: give --data, too"
	if len(f.run.Data) > 0 {
		other, why = arrayFlags, "--%s is for arrays, without --data"
	}
	for _, name := range other {
		if fs.Changed(name) {
			return usagef(why, name)
		}
	}
	if len(f.run.Data) > 0 {
		f.run.Method, f.run.Scheme = method, scheme
		return f.ofModel(ctx, c, fs)
	}
	k := &calibration{ctx: ctx, flags: f, method: method, scheme: scheme}
	return k.ofArrays(c, fs.Args())
}
