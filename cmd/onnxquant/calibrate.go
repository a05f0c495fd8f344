package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/calib"
	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/onnxq/calibrate"
)

type calibrateFlags struct {
	method    string
	bits      int
	zeroPoint bool
	axis      int
	name      string

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
	fs := cli.NewFlagSet()
	f.bits = 8
	r := &f.run
	fs.Var(specvalue.DataPaths{To: &r.Data}, "data",
		"run MODEL on `DATA`: .npz, .npy, .pb or .jsonl files, a folder\nof them, or self: a language model makes its own samples;\nmay be repeated")
	fs.StringVarP(&f.out, "out", "o", "", "write the ranges to `FILE`, for --ranges (default: print them)")
	fs.StringVar(&f.imatrix, "imatrix", "", "write the importance of columns to `FILE`, for --imatrix and\nllama.cpp; without --out no ranges are found")
	fs.StringVar(&f.names, "names", "", "JSON `FILE` that maps names of weights to names in the file\nof --imatrix")
	defineData(fs, r, calibrate.DefaultSamples)
	fs.StringVar(&f.method, "range", "",
		"range method `NAME`: minmax, percentile:P,\nmoving-average:P, entropy or mse (default minmax)")
	fs.Var(cli.Number[int]{Value: &f.bits, Valid: func(n int) bool { return n >= 2 && n <= 16 }, Want: "2 to 16"}, "bits",
		"bits of a code, 2 to 16 (default 8)")
	fs.BoolVar(&f.zeroPoint, "zero-point", false, "asymmetric codes: unsigned, with a zero point")
	fs.IntVar(&f.axis, "axis", 0, "one range per channel along axis `N`; a negative axis counts\nfrom the last")
	fs.StringVar(&f.name, "name", "", "treat all arrays as batches of one tensor, `NAME`")
	fs.BoolVar(&f.json, "json", false, "print the ranges as JSON, also with --out")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

// defineData defines the flags that say how data are used.
func defineData(fs *pflag.FlagSet, r *calibrate.Options, samples int) {
	fs.Var(cli.Number[int]{Value: &r.Samples, Valid: func(n int) bool { return n >= 1 }, Want: "1 or more"}, "samples", fmt.Sprintf("samples to use, `N` (default %d)", samples))
	fs.Var(cli.Number[int]{Value: &r.Length, Valid: func(n int) bool { return n >= 2 }, Want: "2 or more"}, "length", fmt.Sprintf("token ids of a sample that the model makes, `N` (default %d)", calibrate.DefaultLength))
	fs.Uint64Var(&r.Seed, "seed", 0, "seed `N` of samples that the model makes (default 0)")
	fs.Var(cli.Choice[string]{Value: &r.Engine, Allowed: calibrate.Engines, Kind: "ENGINE"}, "engine", "runtime: ort (ONNX Runtime), go, or auto: ort, else go\n(default auto)")
	fs.StringVar(&r.Library, "ort-lib", "", "shared library of ONNX Runtime, a `FILE` (default: search\nthe usual places)")
}

func calibrateCommand() cli.Command {
	return cli.Command{
		Name: "calibrate", Summary: "find ranges of activations, of a model or of arrays",
		Args:    []string{"[flags] --data DATA MODEL", "[flags] FILE..."},
		Example: "model.onnx",
		Text: `Runs MODEL on data and finds the ranges of its activations, for static quantization:
--activations static --ranges FILE. Activations are observed and not kept.

Without --data, finds the ranges of arrays in .npy and .npz files, and prints ranges,
scales and zero points as JSON. Arrays with the same name are batches of one tensor; an
array in an .npy file has the name of the file. Files are read as streams.
`,
		ExampleFor: func(flag string) string {
			if slices.Contains(arrayFlags, flag) {
				return "data.npz"
			}
			return ""
		},
		Flags: func() *pflag.FlagSet { return new(calibrateFlags).flagSet() },
		Run:   runCalibrate,
	}
}

func runCalibrate(ctx context.Context, c *cli.Console, args []string) error {
	var f calibrateFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("calibrate")
	}
	method, err := calib.ParseMethod(cmp.Or(f.method, "minmax"))
	if err != nil {
		return cli.Usagef("--%v", err)
	}
	opts := calibrate.ArrayOptions{Method: method, Scheme: calib.Scheme{Bits: f.bits, Symmetric: !f.zeroPoint}, Name: f.name}
	if err := opts.Check(); err != nil {
		return cli.Usagef("--range %v", err)
	}
	other, why := modelFlags, "--%s is for a model: give --data, too"
	if len(f.run.Data) > 0 {
		other, why = arrayFlags, "--%s is for arrays, without --data"
	}
	for _, name := range other {
		if fs.Changed(name) {
			return cli.Usagef(why, name)
		}
	}
	if len(f.run.Data) > 0 {
		f.run.Method, f.run.Scheme = opts.Method, opts.Scheme
		return f.ofModel(ctx, c, fs)
	}
	if fs.Changed("axis") {
		opts.Axis = &f.axis
	}
	return f.ofArrays(ctx, c, fs.Args(), opts)
}

// ofArrays prints the ranges of the arrays in files.
func (f *calibrateFlags) ofArrays(ctx context.Context, c *cli.Console, paths []string, opts calibrate.ArrayOptions) error {
	if len(paths) == 0 {
		return cli.Usagef("no file given")
	}
	for _, path := range paths {
		if strings.EqualFold(filepath.Ext(path), ".onnx") {
			return cli.Usagef("%s is a model: give --data DATA, what to run it on", cli.Printable(path))
		}
	}
	found, err := calibrate.Arrays(ctx, paths, opts)
	if err != nil || f.quiet && !f.json {
		return err
	}
	return c.JSON(found)
}
