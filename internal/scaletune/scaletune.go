// Package scaletune changes the scales of quantized weights so that the outputs of the whole model come closer to those of
// the float model. Codes stay as they are. That is the flag --tune; package onnxq/tune is the command tune, which chooses
// settings of conversions.
//
// [Run] gets layers with their codes and a [Model], which has gradients of a loss. It returns a [Result]: codes with
// other scales, or why they are no better. Adam moves the logarithm of each scale, by the gradients of some samples
// in each step. The values that count are those of scales as they are stored, so the gradient passes straight
// through their rounding. Scales that are best on the held-out samples win, the first ones among them.
//
// Memory: [Bytes] for each scale, 64 MiB of codes of all layers together, and the elements of the largest layer, as float32
// and as they are stored. Other codes are read again at every step.
package scaletune

import (
	"cmp"
	"context"
	"errors"
	"math"

	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
)

// Model is a float model whose weights can be replaced. A loss compares its outputs with those of its own weights.
type Model interface {
	// Next returns the mean loss of the next n samples. Weights get their gradients.
	Next(n int, w Weights) (float64, error)
	// HeldOut returns the mean loss of the samples that Next leaves out.
	HeldOut(w Weights) (float64, error)
	// Loss names the loss.
	Loss() string
	Close()
}

// Weights are other elements of tensors, and take their gradients.
type Weights interface {
	// Elements sets x to the elements of tensor i.
	Elements(i int, x []float32) error
	// Gradient takes a gradient of the loss by the elements of tensor i. If there are several, they add up.
	Gradient(i int, g []float32) error
}

// ErrNoGradients is wrapped by errors of models that have no gradients.
var ErrNoGradients = errors.New("it has no gradients")

// Layer is a weight with codes.
type Layer struct {
	Weight *quantize.Weight
	Found  *quantize.Found
}

// Options say how scales are tuned. A zero Rate and Batch are the defaults.
type Options struct {
	Steps    int
	Batch    int     // samples of a step
	Rate     float64 // of the logarithms of scales, at the beginning
	Progress func(done, total int)
}

// The defaults, by the measurements in docs/log/calibration.md.
const (
	DefaultSteps = 128
	DefaultBatch = 8
	DefaultRate  = 2e-3
)

// Every how many steps the held-out samples are looked at, and after how many looks without a gain tuning stops, in
// the second half. In the first half the rate is high: the loss may be higher than before.
const (
	lookEvery = 8
	patience  = 5
)

// Result is what Run found.
type Result struct {
	Found  []*quantize.Found // as given, where nothing is better
	Scales int64             // that were tuned
	Steps  int               // of the scales that were taken; 0: nothing is better
	Loss   string            // what was compared
	Before float64           // loss on held-out samples
	After  float64
}

// Bytes is the memory for each scale: its first value, its factor, two moments, a gradient, and the best and the
// present value.
const Bytes = 7 * 4

// Run tunes the scales of layers, in the order of the model's tensors. The model calls the weights one at a time.
func Run(ctx context.Context, m Model, layers []Layer, o Options) (*Result, error) {
	o.Batch, o.Rate = cmp.Or(o.Batch, DefaultBatch), cmp.Or(o.Rate, DefaultRate)
	t := &tuning{layers: make([]*layer, len(layers)), buffers: buffers{codes: mostInMemory}}
	r := &Result{}
	for i, l := range layers {
		var err error
		if t.layers[i], err = newLayer(l, &t.buffers); err != nil {
			return nil, err
		}
		r.Found = append(r.Found, l.Found)
		r.Scales += int64(len(t.layers[i].first))
	}
	var err error
	if r.Before, err = m.HeldOut(t); err != nil {
		return nil, err
	}
	r.Loss = m.Loss()
	r.After = r.Before
	looks := 0
	for step := range o.Steps {
		if err := work.Stopped(ctx); err != nil {
			return nil, err
		}
		if _, err := m.Next(o.Batch, t); err != nil {
			return nil, err
		}
		t.move(step, o)
		if o.Progress != nil && step+1 < o.Steps {
			o.Progress(step+1, o.Steps)
		}
		if (step+1)%lookEvery != 0 && step+1 != o.Steps {
			continue
		}
		loss, err := m.HeldOut(t)
		if err != nil {
			return nil, err
		}
		if looks++; loss < r.After {
			r.After, r.Steps, looks = loss, step+1, 0
			t.remember()
		}
		if looks >= patience && step+1 >= o.Steps/2 {
			break
		}
	}
	if o.Progress != nil {
		o.Progress(o.Steps, o.Steps)
	}
	if r.Steps > 0 {
		for i, l := range t.layers {
			r.Found[i] = l.best()
		}
	}
	return r, nil
}

// tuning is the state of Run.
type tuning struct {
	layers []*layer
	buffers
}

func (t *tuning) Elements(i int, x []float32) error { return t.layers[i].decode(x) }

func (t *tuning) Gradient(i int, g []float32) error { return t.layers[i].reduce(g) }

// Adam's constants.
const (
	firstDecay  = 0.9
	secondDecay = 0.99
	tiny        = 1e-12
)

// warmUp is the number of steps in which the rate grows: the first gradients say little about the sizes of moves.
const warmUp = 8

// move makes a step of Adam. After warmUp, the rate falls to 0 as a cosine does.
func (t *tuning) move(step int, o Options) {
	rate := o.Rate * min(1, float64(step+1)/warmUp) * (1 + math.Cos(math.Pi*float64(step)/float64(o.Steps))) / 2
	first, second := 1-math.Pow(firstDecay, float64(step+1)), 1-math.Pow(secondDecay, float64(step+1))
	for _, l := range t.layers {
		for i, g := range l.gradient {
			m := firstDecay*l.moment[i] + (1-firstDecay)*g
			v := secondDecay*l.square[i] + (1-secondDecay)*g*g
			l.moment[i], l.square[i], l.gradient[i] = m, v, 0
			l.factor[i] -= float32(rate * float64(m) / first / (math.Sqrt(float64(v)/second) + tiny))
		}
		l.store()
	}
}

func (t *tuning) remember() {
	for _, l := range t.layers {
		copy(l.kept, l.scales)
	}
}
