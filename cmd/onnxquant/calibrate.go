package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/calib"
	"onnxquant/internal/npy"
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
		if fs.NArg() != 1 {
			return wrongCount("calibrate --data takes one model", fs)
		}
		if f.names != "" && f.imatrix == "" {
			return usagef("--names needs --imatrix")
		}
		if err := f.checkOut(); err != nil {
			return err
		}
		if f.imatrix != "" {
			if err := f.importance(ctx, c, fs.Arg(0)); err != nil || f.out == "" && !f.json {
				return err
			}
		}
		return f.model(ctx, c, fs.Arg(0))
	}
	if fs.NArg() == 0 {
		return usagef("no file given")
	}
	for _, path := range fs.Args() {
		if strings.EqualFold(filepath.Ext(path), ".onnx") {
			return usagef("%s is a model: give --data DATA, what to run it on", printable(path))
		}
	}
	k := &calibration{ctx: ctx, flags: f, method: method, scheme: scheme}
	for _, path := range fs.Args() {
		if err := npy.Each(path, k.batch); err != nil {
			return err
		}
	}
	if f.quiet && !f.json {
		return nil
	}
	return k.print(c)
}

// The precision of histograms, and limits on the number of channels.
const (
	tensorPrecision  = 12
	channelPrecision = 7 // if there are more than manyChannels channels
	manyChannels     = 16
	maxChannels      = 1 << 16
)

// calibration observes arrays.
type calibration struct {
	ctx     context.Context
	flags   calibrateFlags
	method  calib.Method
	scheme  calib.Scheme
	tensors []*observed
}

// observed is a tensor with its observers.
type observed struct {
	name            string
	batches, values int64
	channels        []calib.Observer // one per channel; one in all without --axis
}

// batch observes an array.
func (k *calibration) batch(a *npy.Array) error {
	channels, step := int64(1), max(a.Len(), 1)
	if k.flags.perAxis {
		var err error
		if channels, step, err = a.Channels(k.flags.axis); err != nil {
			return err
		}
	}
	t, err := k.tensor(a.Name, channels)
	if err != nil {
		return err
	}
	buf := make([]float32, 1<<14)
	for at := int64(0); ; {
		n, err := a.ReadFloats(buf)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = context.Cause(k.ctx)
		}
		if err != nil {
			return err
		}
		if err := t.observe(buf[:n], at, step); err != nil {
			return err
		}
		at += int64(n)
	}
	t.batches++
	for _, o := range t.channels {
		o.EndBatch()
	}
	return nil
}

// observe passes values to the observers of their channels. The first value is element at
// of the batch.
func (t *observed) observe(x []float32, at, step int64) error {
	for len(x) > 0 {
		n := min(step-at%step, int64(len(x)))
		if err := t.channels[at/step%int64(len(t.channels))].Observe(x[:n]); err != nil {
			return err
		}
		x, at, t.values = x[n:], at+n, t.values+n
	}
	return nil
}

// tensor finds or adds a tensor.
func (k *calibration) tensor(name string, channels int64) (*observed, error) {
	if k.flags.name != "" {
		name = k.flags.name
	}
	for _, t := range k.tensors {
		if t.name != name {
			continue
		}
		if int64(len(t.channels)) != channels {
			return nil, fmt.Errorf("it has %d channels, but an earlier batch of %s has %d", channels, name, len(t.channels))
		}
		return t, nil
	}
	if channels > maxChannels {
		return nil, fmt.Errorf("it has %d channels, at most %d are supported", channels, maxChannels)
	}
	precision := tensorPrecision
	if channels > manyChannels {
		precision = channelPrecision
	}
	t := &observed{name: name}
	for range channels {
		o, err := k.method.Observer(k.scheme, precision)
		if err != nil {
			return nil, err
		}
		t.channels = append(t.channels, o)
	}
	k.tensors = append(k.tensors, t)
	return t, nil
}

// The JSON that calibrate prints. A tensor has one range or, with --axis, one per channel.
// The range of a channel without values is null.
type (
	calibrationJSON struct {
		Range     string        `json:"range"`
		Bits      int           `json:"bits"`
		Symmetric bool          `json:"symmetric"`
		Axis      *int          `json:"axis,omitempty"`
		Tensors   []*tensorJSON `json:"tensors"`
	}
	tensorJSON struct {
		Name    string `json:"name"`
		Batches int64  `json:"batches"`
		Values  int64  `json:"values"`
		*calib.Range
		*calib.Params
		Channels []*rangeJSON `json:"channels,omitempty"`
	}
	rangeJSON struct {
		calib.Range
		calib.Params
	}
)

func (k *calibration) print(c *console) error {
	out := calibrationJSON{Range: k.method.String(), Bits: k.scheme.Bits, Symmetric: k.scheme.Symmetric, Tensors: []*tensorJSON{}}
	if k.flags.perAxis {
		out.Axis = &k.flags.axis
	}
	for _, t := range k.tensors {
		j := &tensorJSON{Name: t.name, Batches: t.batches, Values: t.values}
		for _, o := range t.channels {
			r, err := o.Range()
			if err != nil && !errors.Is(err, calib.ErrEmpty) {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			var found *rangeJSON
			if err == nil {
				found = &rangeJSON{r, k.scheme.Params(r)}
			}
			if k.flags.perAxis {
				j.Channels = append(j.Channels, found)
			} else if found != nil {
				j.Range, j.Params = &found.Range, &found.Params
			}
		}
		out.Tensors = append(out.Tensors, j)
	}
	return c.json(out)
}
