// Package activations runs models on data, for conversions that calibrate: [onnxq.Options].Calibration.
//
//	data := activations.New("in.onnx", []string{"ids.npz"}, activations.Options{})
//	err := data.Open(ctx)
//	…
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Algorithm: spec.Best, Calibration: data})
package activations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
)

// Self, as the only path of data, lets a causal language model make its own samples.
const Self = calibrate.Self

// Options say what models are run on, and by what.
type Options struct {
	Samples int    // how many at most; default calibrate.DefaultSamples
	Engine  string // one of Engines; default auto
	Library string // path of ONNX Runtime's shared library; "" searches the usual places
}

// Engines lists the engines that run models.
var Engines = calibrate.Engines

// Data are samples for a model. They stay in their files.
type Data struct {
	model   string
	paths   []string
	options Options
	data    *calibrate.Data // nil until Open
}

var _ onnxq.Calibration = (*Data)(nil)

// New returns the samples in files and folders for the model at path. Open must be called before
// they are used.
func New(model string, paths []string, o Options) *Data {
	return &Data{model: model, paths: paths, options: o}
}

// Open finds the samples, and what runs the model.
func (d *Data) Open(ctx context.Context) (err error) {
	d.data, err = calibrate.Open(ctx, d.model, d.run())
	return err
}

func (d *Data) run() calibrate.Options {
	o := d.options
	return calibrate.Options{Data: d.paths, Samples: o.Samples, Engine: o.Engine, Library: o.Library}
}

// Check finds what can be wrong with the data without running the model: where that makes its own
// samples, it must be a language model.
func (d *Data) Check(ctx context.Context) error {
	return calibrate.Check(ctx, d.model, d.run())
}

// Lacked is why the models run in pure Go though nobody asked for that: what of ONNX Runtime was not
// found. Open must have been called.
func (d *Data) Lacked() error { return d.data.Engine().Lacked() }

// InGo reports whether the models run in pure Go: ONNX Runtime was not found, or not asked for.
// Open must have been called.
func (d *Data) InGo() bool { return d.data.Engine().IsGo() }

// Key is a hash of the samples, with the name of what runs models.
func (d *Data) Key(ctx context.Context) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, d.InGo())
	for inputs, err := range d.data.Samples().All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return "", err
		}
		for _, t := range inputs {
			fmt.Fprintf(h, "%q %v %v\n", t.Name, t.DType, t.Dims)
			h.Write(t.Data)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Warnings implements onnxq.Calibration. Open must have been called.
func (d *Data) Warnings() ([]string, error) { return d.data.Warnings() }

// Len is the number of samples.
func (d *Data) Len() int { return d.data.Samples().Len() }
