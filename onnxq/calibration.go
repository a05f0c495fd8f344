package onnxq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convert"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/operands"
	"onnxquant/internal/scaletune"
	"onnxquant/rules"
	"onnxquant/spec"

	"github.com/dustin/go-humanize/english"
)

// Calibration runs models on samples of their inputs.
type Calibration interface {
	// Len is the number of samples.
	Len() int
	// Warnings returns sentences that say how the samples may mislead.
	Warnings() ([]string, error)
	// Key returns equal strings for equal samples and equal runtimes.
	Key(ctx context.Context) (string, error)
	// Run runs several models, or parts of models, side by side. It runs them on the wanted samples, in
	// the order of samples. It passes the values of each part to do. If values cannot be kept, or are
	// there no more, the error wraps ErrNotKept: the parts then begin at the inputs of the model.
	Run(ctx context.Context, parts []Part, wanted func(sample int) bool, do func(sample int, values [][]Value) error) error
	// Kept describes the values that Run kept in a folder.
	Kept(folder string) ([]Kept, error)
}

// Differentiable is a Calibration that also has gradients. Options.Tune needs it.
type Differentiable interface {
	Calibration
	// Gradients opens the float model at path, for gradients of its outputs by some stored tensors. The error
	// wraps ErrNoGradients if there are none, for instance those of an operator.
	Gradients(ctx context.Context, path string, tensors []string, heldOut func(sample int) bool) (Gradients, error)
}

// Measurable is a Calibration that can measure a run of a model. Plan.MeasureCalibration needs it.
type Measurable interface {
	Calibration
	// Measure runs the model at path on a sample, and returns the shapes of the named values.
	Measure(ctx context.Context, path string, values []string) (Measured, error)
}

// Measured is what a run of a model on a sample took.
type Measured struct {
	Open, Run time.Duration // Run: if all processors are free
	Making    float64       // runs on all samples before the calibration, to make the samples
	Handed    float64       // numbers that these runs return
	Drawn     float64       // numbers that ids of samples are drawn by
	Memory    int64         // peak in bytes; 0: unknown
	Apart     bool          // the memory is that of a process of its own
	Shapes    [][]int64     // of the values that were asked for; nil: was not made
}

// MeasureCalibration runs the float model on a sample or two. CalibrationCost then has what calibration takes with all runs
// of the model. It does nothing if no weight is calibrated, or if Options.Calibration is not Measurable. CalibrationCost
// stays as it is if the model cannot be run: to convert it will fail.
func (p *Plan) MeasureCalibration(ctx context.Context) {
	m, ok := p.opts.Calibration.(activations)
	if p.CalibrationCost == nil || !ok {
		return
	}
	measurable, ok := m.Calibration.(Measurable)
	if !ok {
		return
	}
	cost, err := p.plan.MeasuredCost(func(path string, values []string) (layerfit.Measured, error) {
		m, err := measurable.Measure(ctx, path, values)
		found := layerfit.Measured{Open: m.Open, Run: m.Run, Making: m.Making, Handed: m.Handed, Drawn: m.Drawn, Memory: m.Memory, Apart: m.Apart, Shapes: map[string][]int64{}}
		for i, dims := range m.Shapes {
			found.Shapes[values[i]] = dims
		}
		return found, err
	})
	if err == nil && cost != nil {
		p.CalibrationCost = costOf(cost)
	}
}

// costOf converts a cost for the caller.
func costOf(c *layerfit.Cost) *CalibrationCost {
	if c == nil {
		return nil
	}
	return &CalibrationCost{c.Groups, int(math.Ceil(c.Runs)), c.Memory, c.Disk, c.Time.Seconds(), c.CPU.Seconds(), c.Free, c.Measured}
}

// DefaultTune is a good number for Options.Tune.
const DefaultTune = scaletune.DefaultSteps

// Gradients compares the outputs of a float model with those that it has with other weights.
type Gradients interface {
	// Next returns the mean loss of the next n samples. Weights get their gradients.
	Next(n int, w Weights) (float64, error)
	// HeldOut returns the mean loss of the samples that are held out.
	HeldOut(w Weights) (float64, error)
	// Loss names the loss.
	Loss() string
	Close()
}

// Weights are other elements of the tensors of Gradients, and take the gradients of the loss by these.
type Weights interface {
	// Elements sets x to the elements of tensor i.
	Elements(i int, x []float32) error
	// Gradient takes a gradient of tensor i. If there are several, they add up.
	Gradient(i int, g []float32) error
}

// tuned adapts Gradients to package scaletune, as activations does for layerfit.
type tuned struct{ Gradients }

func (t tuned) Next(n int, w scaletune.Weights) (float64, error) { return t.Gradients.Next(n, w) }
func (t tuned) HeldOut(w scaletune.Weights) (float64, error)     { return t.Gradients.HeldOut(w) }

// ErrNoGradients is wrapped by errors of Differentiable.Gradients.
var ErrNoGradients = scaletune.ErrNoGradients

// tuning returns how scales are tuned.
func (o Options) tuning() convert.Tuning {
	d, _ := o.Calibration.(Differentiable)
	t := convert.Tuning{Steps: o.Tune, Progress: o.Tuning}
	if d != nil {
		t.Open = func(ctx context.Context, path string, tensors []string, heldOut func(int) bool) (scaletune.Model, error) {
			g, err := d.Gradients(ctx, path, tensors, heldOut)
			if err != nil {
				return nil, err
			}
			return tuned{g}, nil
		}
	}
	return t
}

// Part is a model, or a part of one, in a file. The values between two parts are kept in a folder, so that
// calibration runs each node about twice, however deep the model is.
type Part struct {
	Path   string   // "" if all values are in From
	Values []string // that are passed on: inputs, outputs or inner values of the graph
	From   string   // folder with values of each sample, which the part takes as inputs; or ""
	Keep   []string // values that are kept for the part behind this one
	To     string   // folder for these, which exists
}

// Kept describes a value that is kept.
type Kept struct {
	Name string
	Type dtype.DType
	Rank int
}

// ErrNotKept is wrapped by errors of Calibration.Run about values that cannot be kept.
var ErrNotKept = layerfit.ErrNotKept

// Value is a tensor that a model computed.
type Value struct {
	Dims []int64
	Data []float32 // nil if the type is not floating-point, such as class numbers
}

// activations adapts a Calibration to package layerfit.
type activations struct{ Calibration }

// activationsOf wraps a Calibration; nil stays nil.
func activationsOf(c Calibration) layerfit.Activations {
	if c == nil {
		return nil
	}
	return activations{c}
}

func (a activations) Run(ctx context.Context, parts []layerfit.Part, wanted func(sample int) bool, do func(sample int, values [][]operands.Value) error) error {
	given := make([]Part, len(parts))
	for i, p := range parts {
		given[i] = Part(p)
	}
	return a.Calibration.Run(ctx, given, wanted, func(sample int, values [][]Value) error {
		all := make([][]operands.Value, len(values))
		for i, model := range values {
			for _, v := range model {
				all[i] = append(all[i], operands.Value(v))
			}
		}
		return do(sample, all)
	})
}

func (a activations) Kept(folder string) ([]layerfit.Kept, error) {
	kept, err := a.Calibration.Kept(folder)
	all := make([]layerfit.Kept, len(kept))
	for i, k := range kept {
		all[i] = layerfit.Kept(k)
	}
	return all, err
}

// checkCalibration refuses calibration data that no algorithm uses, and algorithms without the data
// that they need.
func (o Options) checkCalibration() error {
	_, differentiable := o.Calibration.(Differentiable)
	switch {
	case o.Tune < 0:
		return fmt.Errorf("%d steps of tuning", o.Tune)
	case o.Tune > 0 && o.Calibration == nil:
		return errors.New("scales are tuned with calibration data: there are none")
	case o.Tune > 0 && !differentiable:
		return errors.New("scales are tuned by gradients, which these calibration data have not")
	case o.Calibration == nil && o.Algorithm.NeedsData():
		return fmt.Errorf("algorithm %s %w", o.Algorithm, ErrNoData)
	case o.Calibration == nil && o.Resume:
		return errors.New("there is no calibration to resume")
	case o.Calibration == nil && o.CalibrationStore != "":
		return errors.New("there is no calibration to share")
	case o.Calibration == nil:
		return nil
	case o.CalibrationStore != "" && o.Algorithm.Calibrated() && o.Algorithm != spec.GPTQ:
		return layerfit.ErrShares(o.Algorithm)
	case !o.Algorithm.Calibrated() && !slices.ContainsFunc(o.Precision.Entries(), func(e rules.PrecisionEntry) bool {
		return e.Override.Algorithm != nil && e.Override.Algorithm.Calibrated()
	}):
		switch o.Activations {
		case spec.Dynamic:
			return errors.New("dynamic activations need no calibration data: the weights are rounded to nearest")
		case spec.Static:
			return errors.New("static activations need no calibration data besides their ranges: the weights are rounded to nearest")
		}
		var calibrated []string
		for _, a := range spec.CalibratedAlgorithms() {
			calibrated = append(calibrated, string(a))
		}
		return fmt.Errorf("calibration data are for algorithms %s, not for %s", english.WordSeries(calibrated, "and"), cmp.Or(o.Algorithm, spec.RTN))
	}
	return nil
}
