package layerfit

import (
	"context"
	"errors"
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// exponents is the number of exponents that are tried for a channel's factor: 0, 1/exponents, … up to
// 1, exclusive. Exponent 0 makes all factors 1.
const exponents = 20

// Channels returns, for each layer, factors by which the rows of its weight are multiplied and the
// channels of its input divided. They minimize the output error of the weight rounded to nearest; nil
// if no factors lower it. Layers with the same input share their factors. This is AWQ (Lin and others,
// "AWQ: Activation-aware Weight Quantization", 2023): a factor is a power of the channel's mean
// magnitude.
func Channels(ctx context.Context, layers []Layer, a Activations, o Options) ([][]float32, error) {
	c := newCalibration(layers, a, o)
	c.Algorithm = spec.AWQ
	factors := make([][]float32, len(layers))
	groups := c.groups()
	c.frontier = c.newFrontier(groups)
	c.frontier.remove() // left by a process that died
	defer c.frontier.remove()
	sample := c.work(groups, allExponents)
	for g, group := range groups {
		sums, err := c.observe(ctx, g, wholes(group), func() { c.pace.addTime(&c.pace.running, sample[g]) })
		if err != nil {
			return nil, err
		}
		for i, in := range group {
			best, err := c.channels(ctx, in, sums[i][0])
			if err != nil {
				return nil, err
			}
			for _, l := range in.layers {
				factors[l] = best
				c.pace.addTime(&c.pace.fitting, c.products(l, allExponents))
			}
			sums[i] = nil
		}
		c.frontier.forget(g)
	}
	c.pace.end()
	return factors, nil
}

// allExponents is how often a weight is multiplied for its channels.
func allExponents(*quantize.Weight) float64 { return exponents }

// channels finds the factors of layers with the same input.
func (c *calibration) channels(ctx context.Context, in *inputs, m *moments) ([]float32, error) {
	_, err := secondorder.Normalize(m.h, m.k)
	switch {
	case m.rows == 0 || errors.Is(err, secondorder.ErrHessian):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var tried [exponents][]float32
	for e := range tried {
		tried[e] = m.factors(float64(e) / exponents)
	}
	var lost [exponents]float64
	for _, l := range in.layers {
		if err := c.addLosses(ctx, c.layers[l].Weight, m, &tried, &lost); err != nil {
			return nil, err
		}
	}
	best := 0
	for e, loss := range lost {
		if loss < lost[best] {
			best = e
		}
	}
	if best == 0 {
		return nil, nil
	}
	return tried[best], nil
}

// factors returns a power of each channel's mean magnitude. The powers are divided by the geometric
// mean of the smallest and the largest.
func (m *moments) factors(exponent float64) []float32 {
	const least = 1e-4 // over the greatest mean
	var greatest float64
	for _, sum := range m.magnitude {
		greatest = max(greatest, sum)
	}
	powers, low, high := make([]float64, m.k), math.Inf(1), 0.0
	for i, sum := range m.magnitude {
		powers[i] = math.Pow(max(sum/greatest, least), exponent)
		low, high = min(low, powers[i]), max(high, powers[i])
	}
	f := make([]float32, m.k)
	for i, p := range powers {
		f[i] = float32(p / math.Sqrt(low*high))
	}
	return f
}

// trial has the buffers of one worker.
type trial struct {
	raw         []byte
	weights     []float32
	by, outputs []float32
	columns     secondorder.Columns
	multiply    linalg.Multiplier
}

// addLosses adds the error of a layer's outputs with each of some factors.
func (c *calibration) addLosses(ctx context.Context, w *quantize.Weight, m *moments, tried *[exponents][]float32, lost *[exponents]float64) error {
	width, n := c.panelWidth(w.K), w.Elements()/w.K
	all := make([][exponents]float64, (n-1)/width+1)
	err := work.Each(ctx, c.workers, len(all), func(ctx context.Context, t *trial, i int) error {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		at := int64(i) * width
		columns := min(width, n-at)
		if err := w.ReadColumns(&t.raw, buffer.Grow(&t.weights, w.K*columns), at, columns); err != nil || !finite(t.weights) {
			return err
		}
		for e, factors := range tried {
			all[i][e] = t.loss(w, m, factors, int(columns))
		}
		return nil
	})
	for _, losses := range all {
		for e, loss := range losses {
			lost[e] += loss
		}
	}
	return err
}

// loss is the error of the outputs of some columns that are multiplied by factors and rounded to nearest.
func (t *trial) loss(w *quantize.Weight, m *moments, factors []float32, n int) (sum float64) {
	f := w.SecondOrder(w.Codec)
	t.columns.Resize(m.k, n, f)
	for i, factor := range factors {
		for j, v := range t.weights[i*n:][:n] {
			t.columns.Weights[i*n+j] = v * factor
		}
	}
	t.columns.FitBlocks(f, f.Codec.Nearest())
	by := buffer.Grow(&t.by, int64(m.k*n))
	t.columns.Decode(f, by)
	for i, factor := range factors {
		for j, v := range t.weights[i*n:][:n] {
			by[i*n+j] = by[i*n+j]/factor - v
		}
	}
	outputs := buffer.Grow(&t.outputs, int64(m.k*n))
	clear(outputs)
	t.multiply.Add(linalg.Of(outputs, m.k, n), 1, linalg.Of(m.h, m.k, m.k), linalg.Of(by, m.k, n))
	for i, v := range by {
		sum += float64(v) * float64(outputs[i])
	}
	return sum
}
