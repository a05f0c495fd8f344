package onnxq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/layerfit"
	"onnxquant/internal/rows"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// Calibration runs models on samples of their inputs.
type Calibration interface {
	// Len is the number of samples.
	Len() int
	// Warnings tell, each in a sentence, in what the samples may mislead.
	Warnings() ([]string, error)
	// Key is the same for the same samples, and what runs models on them.
	Key(ctx context.Context) (string, error)
	// Run runs models, by their paths, side by side on the samples that are wanted, in their
	// order. It hands on the named values of each model: inputs, outputs and what is inside of its
	// graph.
	Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]Value) error) error
}

// Value is a tensor that a model has computed.
type Value struct {
	Dims []int64
	Data []float32 // nil if the type is not floating-point, as of classes
}

// activations are a Calibration as package layerfit takes it.
type activations struct{ Calibration }

// activationsOf returns nil for nil.
func activationsOf(c Calibration) layerfit.Activations {
	if c == nil {
		return nil
	}
	return activations{c}
}

func (a activations) Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]rows.Value) error) error {
	return a.Calibration.Run(ctx, models, names, wanted, func(sample int, values [][]Value) error {
		all := make([][]rows.Value, len(values))
		for i, model := range values {
			for _, v := range model {
				all[i] = append(all[i], rows.Value(v))
			}
		}
		return do(sample, all)
	})
}

// checkCalibration refuses calibration that no algorithm uses, and algorithms that need it without.
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
		return fmt.Errorf("calibration data are for algorithms awq, gptq and best, not for %s", cmp.Or(o.Algorithm, spec.RTN))
	}
	return nil
}
