// Package activations runs models on calibration data: for [onnxq.Options].Calibration.
//
//	data := activations.New("in.onnx", []string{"ids.npz"}, activations.Options{})
//	err := data.Open(ctx)
//	…
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Algorithm: spec.Best, Calibration: data})
package activations

import (
	"context"
	"fmt"

	"onnxquant/internal/execute"
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
	o := d.options
	d.data, err = calibrate.Open(ctx, d.model, calibrate.Options{Data: d.paths, Samples: o.Samples, Engine: o.Engine, Library: o.Library})
	return err
}

// Len is the number of samples.
func (d *Data) Len() int { return d.data.Samples().Len() }

// Run runs models side by side on the samples that are wanted.
func (d *Data) Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][][]float32) error) error {
	var sessions []execute.Session
	for i, path := range models {
		s, err := d.data.Engine().Open(ctx, path, names[i]...)
		if err != nil {
			return err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	sample := -1
	for inputs, err := range d.data.Samples().All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if sample++; !wanted(sample) {
			continue
		}
		values := make([][][]float32, len(models))
		for i, s := range sessions {
			results, err := s.Run(inputs, names[i]...)
			if err != nil {
				return fmt.Errorf("sample %d: %w", sample, err)
			}
			for _, t := range results {
				values[i] = append(values[i], t.Float32s())
			}
		}
		if err := do(sample, values); err != nil {
			return err
		}
	}
	return nil
}
