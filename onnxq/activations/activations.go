// Package activations runs models on calibration data: for [onnxq.Options].Calibration.
//
//	data := activations.New("in.onnx", []string{"ids.npz"}, activations.Options{})
//	err := data.Open(ctx)
//	…
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Algorithm: spec.Best, Calibration: data})
package activations

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"onnxquant/internal/execute"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/observe"
	"onnxquant/internal/samples"
	"onnxquant/onnxq"
)

// Self, as the only path of data, lets a causal language model make its own samples.
const Self = "self"

// Options say what models are run on, and by what.
type Options struct {
	Samples int    // how many at most; default samples.Default
	Engine  string // one of Engines; default auto
	Library string // path of ONNX Runtime's shared library; "" searches the usual places
}

// Engines lists the engines that run models.
var Engines = observe.Engines

// Data are samples for a model. They stay in their files.
type Data struct {
	model   string
	paths   []string
	options Options
	engine  *observe.Engine
	samples *samples.Samples
}

var _ onnxq.Calibration = (*Data)(nil)

// New returns the samples in files and folders for the model at path. Open must be called before
// they are used.
func New(model string, paths []string, o Options) *Data {
	return &Data{model: model, paths: paths, options: o}
}

// Open finds the samples, and what runs the model.
func (d *Data) Open(ctx context.Context) error {
	m, err := modelfile.Open(d.model)
	if err != nil {
		return err
	}
	defer m.Close()
	if d.engine, err = observe.Find(ctx, d.options.Engine, d.options.Library); err != nil {
		return err
	}
	n := cmp.Or(d.options.Samples, samples.Default)
	if slices.Equal(d.paths, []string{Self}) {
		d.samples, err = d.engine.Self(ctx, d.model, observe.SelfOptions{N: n})
	} else {
		d.samples, err = samples.Open(m, d.paths, n)
	}
	return err
}

// Len is the number of samples.
func (d *Data) Len() int { return d.samples.Len() }

// Run runs models side by side on the samples that are wanted.
func (d *Data) Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][][]float32) error) error {
	var sessions []execute.Session
	for i, path := range models {
		s, err := d.engine.Open(ctx, path, names[i]...)
		if err != nil {
			return err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	sample := -1
	for inputs, err := range d.samples.All() {
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
