package onnxq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/layerfit"
	"onnxquant/internal/operands"
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
	// Run runs several models, given by path, side by side. It runs them on the wanted samples, in
	// the order of samples. It passes the named values of each model to do: inputs, outputs or
	// inner values of the graph.
	Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]Value) error) error
}

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

func (a activations) Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]operands.Value) error) error {
	return a.Calibration.Run(ctx, models, names, wanted, func(sample int, values [][]Value) error {
		all := make([][]operands.Value, len(values))
		for i, model := range values {
			for _, v := range model {
				all[i] = append(all[i], operands.Value(v))
			}
		}
		return do(sample, all)
	})
}

// checkCalibration refuses calibration data that no algorithm uses, and algorithms without the data
// that they need.
func (o Options) checkCalibration() error {
	switch {
	case o.Calibration == nil && o.Algorithm.NeedsData():
		return fmt.Errorf("algorithm %s %w", o.Algorithm, ErrNoData)
	case o.Calibration == nil && o.Resume:
		return errors.New("there is no calibration to resume")
	case o.Calibration == nil:
		return nil
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
