package layerfit

import (
	"context"
	"math"
	"os"
	"path/filepath"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
)

// checkedModels is how many models run for check, one after another.
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
	c.Error.HeldOut = c.activations.Len() >= c.heldOutEvery()
	wanted := func(sample int) bool { return !c.Error.HeldOut || c.heldOut(sample, 0) }
	float, err := newOutputs(c.State + keptSuffix)
	if err != nil {
		return err
	}
	defer float.remove()
	var errs [checkedModels][]float64 // of each output of each sample; those of the float model are squares
	samples := 0
	for model, found := range [checkedModels][]*quantize.Found{nil, c.Found, mse} {
		path, err := c.Write(ctx, []string{Float, interimModel, interimModel}[model], found, c.Outputs, "")
		if err != nil {
			return err
		}
		done := 0
		err = c.activations.Run(ctx, []Part{{Path: path, Values: c.Outputs}}, wanted, func(_ int, values [][]operands.Value) error {
			defer c.pace.addTime(&c.pace.running, 1)
			for _, y := range values[0] {
				if model == 0 {
					errs[0] = append(errs[0], squares(y.Data))
					if err := float.add(y.Data); err != nil {
						return err
					}
					continue
				}
				want, err := float.read(len(errs[model]))
				if err != nil {
					return err
				}
				errs[model] = append(errs[model], difference(y.Data, want))
			}
			done++
			return nil
		})
		if err != nil {
			return err
		}
		samples = done
	}
	var squared, found, least float64 // outputs, and errors
	for i, s := range errs[0] {
		a, b := errs[1][i], errs[2][i]
		if !(s > 0) || !isNumber(s) || !isNumber(b) {
			continue
		}
		if !isNumber(a) {
			a = math.Inf(1) // with the codes of mse it is not
		}
		squared, found, least = squared+1, found+a/s, least+b/s
	}
	if squared == 0 {
		return nil
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

// outputs is a file with the outputs of a model.
type outputs struct {
	folder string
	file   *os.File
	ends   []int64
	raw    []byte
	data   []float32
}

func newOutputs(folder string) (*outputs, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(folder, "outputs"))
	return &outputs{folder: folder, file: file}, err
}

// end is where output n begins.
func (o *outputs) end(n int) int64 {
	if n == 0 {
		return 0
	}
	return o.ends[n-1]
}

func (o *outputs) add(x []float32) error {
	raw, at := buffer.Grow(&o.raw, int64(4*len(x))), o.end(len(o.ends))
	dtype.Float32.Encode(raw, x)
	o.ends = append(o.ends, at+int64(len(raw)))
	_, err := o.file.WriteAt(raw, at)
	return err
}

// read returns output n. It is overwritten by the next call.
func (o *outputs) read(n int) ([]float32, error) {
	if n >= len(o.ends) {
		return nil, nil
	}
	raw := buffer.Grow(&o.raw, o.ends[n]-o.end(n))
	if _, err := o.file.ReadAt(raw, o.end(n)); err != nil {
		return nil, err
	}
	data := buffer.Grow(&o.data, int64(len(raw)/4))
	dtype.Float32.Decode(data, raw)
	return data, nil
}

func (o *outputs) remove() {
	o.file.Close()
	os.RemoveAll(o.folder)
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
