package calibrate

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/gradient"
	"onnxquant/onnxq"
)

// Gradients opens the model at path, to find how its outputs change with some stored tensors. Samples that are held out
// take no part in training. The pure Go engine runs it.
func (d *Data) Gradients(ctx context.Context, path string, tensors []string, heldOut func(sample int) bool) (onnxq.Gradients, error) {
	m, err := gradient.Open(ctx, path, tensors)
	if err != nil {
		return nil, noGradients(err)
	}
	g := &gradients{Model: m, data: d, heldOut: heldOut}
	g.next, g.stop = iter.Pull2(g.training)
	return g, nil
}

// gradients are the gradients of a model on the samples.
type gradients struct {
	*gradient.Model
	data    *Data
	heldOut func(sample int) bool
	next    func() (gradient.Sample, error, bool)
	stop    func()
}

// training yields the samples that are not held out, again and again.
func (g *gradients) training(yield func(gradient.Sample, error) bool) {
	for {
		sample := -1
		for inputs, err := range g.data.samples.All() {
			if sample++; err == nil && g.heldOut(sample) {
				continue
			}
			if !yield(gradient.Sample{Number: sample, Inputs: inputs}, err) {
				return
			}
		}
	}
}

// Next returns the mean loss of the next n samples, and hands on gradients.
func (g *gradients) Next(n int, w onnxq.Weights) (float64, error) {
	var batch []gradient.Sample
	for range n {
		s, err, _ := g.next()
		if err != nil {
			return 0, err
		}
		batch = append(batch, s)
	}
	loss, err := g.Step(batch, w, true)
	return loss, noGradients(err)
}

// noGradients marks an error that says what the engine cannot do.
func noGradients(err error) error {
	if errors.Is(err, execute.ErrUnsupported) {
		return fmt.Errorf("%w: %w", onnxq.ErrNoGradients, err)
	}
	return err
}

// HeldOut returns the mean loss of the samples that are held out.
func (g *gradients) HeldOut(w onnxq.Weights) (loss float64, err error) {
	const together = 8
	var batch []gradient.Sample
	n, sample := 0, -1
	add := func() error {
		l, err := g.Step(batch, w, false)
		n, loss, batch = n+len(batch), loss+l*float64(len(batch)), nil
		return noGradients(err)
	}
	for inputs, err := range g.data.samples.All() {
		if err != nil {
			return 0, err
		}
		if sample++; !g.heldOut(sample) {
			continue
		}
		if batch = append(batch, gradient.Sample{Number: sample, Inputs: inputs}); len(batch) == together {
			if err := add(); err != nil {
				return 0, err
			}
		}
	}
	if len(batch) > 0 {
		if err := add(); err != nil {
			return 0, err
		}
	}
	return loss / float64(max(n, 1)), nil
}

// Close closes the model.
func (g *gradients) Close() {
	g.stop()
	g.Model.Close()
}
