package layerfit

import (
	"context"
	"math"

	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
)

// checkedModels is how many models run side by side for check.
const checkedModels = 3

// checkedSamples is on how many samples.
func (c *calibration) checkedSamples() int {
	if n := c.activations.Len(); n < c.heldOutEvery() {
		return n
	}
	return c.activations.Len() / c.heldOutEvery()
}

// check compares the errors of the model's outputs, on held-out samples, with the codes found and with
// the codes of mse. If mse is better, the result gets its codes.
func (c *calibration) check(ctx context.Context) error {
	if c.Error.Layers == 0 {
		return nil
	}
	mse := make([]*quantize.Found, len(c.layers))
	for i, l := range c.layers {
		if c.Found[i] == nil {
			continue
		}
		mse[i] = c.store.add(l.Weight)
		if err := c.mse(ctx, l, mse[i]); err != nil {
			return err
		}
	}
	var parts []Part
	for name, found := range [][]*quantize.Found{nil, c.Found, mse} {
		path, err := c.Write(ctx, []string{Float, interimModel, "mse"}[name], found, c.Outputs, "")
		if err != nil {
			return err
		}
		parts = append(parts, Part{Path: path, Values: c.Outputs})
	}
	c.Error.HeldOut = c.activations.Len() >= c.heldOutEvery()
	wanted := func(sample int) bool { return !c.Error.HeldOut || c.heldOut(sample, 0) }
	var squared, found, least float64 // outputs, and errors
	samples := 0
	err := c.activations.Run(ctx, parts, wanted, func(_ int, values [][]operands.Value) error {
		samples++
		defer c.pace.addTime(&c.pace.running, checkedModels)
		for i, y := range values[0] {
			a, b, s := difference(values[1][i].Data, y.Data), difference(values[2][i].Data, y.Data), squares(y.Data)
			if !(s > 0) || !isNumber(s) || !isNumber(b) {
				continue
			}
			if !isNumber(a) {
				a = math.Inf(1) // with the codes of mse it is not
			}
			squared, found, least = squared+1, found+a/s, least+b/s
		}
		return nil
	})
	if err != nil || squared == 0 {
		return err
	}
	e := &c.Error
	e.Output, e.OutputMSE = found/squared, least/squared
	e.Samples = samples
	if e.Output > e.OutputMSE {
		e.Refused, e.Output, e.Found = true, e.OutputMSE, e.MSE
		on := "all samples"
		if e.HeldOut {
			on = "held-out samples"
		}
		for i := range c.Found {
			if c.Found[i] != nil {
				c.Found[i], c.Notes[i] = mse[i], "with "+string(c.Algorithm)+" the error of the model's outputs on "+on+" is larger"
			}
		}
	}
	return nil
}

// isNumber reports whether x is neither NaN nor infinite.
func isNumber(x float64) bool { return x-x == 0 }

// difference is the squared difference of two values. It is NaN if the lengths differ (data-dependent
// shapes).
func difference(a, b []float32) (sum float64) {
	if len(a) != len(b) {
		return math.NaN()
	}
	for i, v := range a {
		d := float64(v) - float64(b[i])
		sum += d * d
	}
	return sum
}
