package layerfit

import (
	"context"
	"fmt"
	"slices"

	"onnxquant/internal/quantize"
)

// group finds the codes of a group of layers.
func (c *calibration) group(ctx context.Context, group []*inputs) error {
	sums, err := c.observe(ctx, group)
	if err != nil {
		return err
	}
	for i, in := range group {
		if err := c.solve(ctx, in, sums[i]); err != nil {
			return err
		}
		sums[i] = nil
	}
	return nil
}

// tenth is how many samples there are for each that is held out. With fewer samples than that,
// rows are held out.
const tenth = 10

func (c *calibration) held(sample, row int) bool {
	if c.activations.Len() < tenth {
		return row%tenth == tenth-1
	}
	return sample%tenth == tenth-1
}

// observe adds up the moments of a group.
func (c *calibration) observe(ctx context.Context, group []*inputs) ([]*moments, error) {
	var sums []*moments
	var float, interim names
	for _, in := range group {
		var columns []int
		for _, i := range in.layers {
			w := c.layers[i].Weight
			columns = append(columns, int(w.Elements()/w.K))
			for _, p := range c.layers[i].Products {
				interim.add(p.Input)
				if c.Best {
					float.add(p.Output)
					float.add(p.Beside)
					interim.add(p.Beside)
				}
			}
		}
		sums = append(sums, newMoments(int(c.layers[in.layers[0]].Weight.K), columns, c.Best))
	}
	var found []*quantize.Found
	if c.Best {
		found = c.Found
	}
	path, err := c.Write(ctx, "interim", found, interim)
	if err != nil {
		return nil, err
	}
	models, wanted := []string{path}, [][]string{interim}
	if len(float) > 0 {
		if path, err = c.Write(ctx, "float", nil, float); err != nil {
			return nil, err
		}
		models, wanted = append(models, path), append(wanted, float)
	}
	err = c.activations.Run(ctx, models, wanted, func(int) bool { return true }, func(sample int, values [][][]float32) error {
		if len(float) == 0 {
			values = append(values, nil)
		}
		for i, in := range group {
			if err := c.addSample(ctx, in, sums[i], sample, float.of(values[1]), interim.of(values[0])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, m := range sums {
		if err := m.flush(ctx, c.workers); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// names are names of values, each once.
type names []string

func (n *names) add(name string) {
	if name != "" && !slices.Contains(*n, name) {
		*n = append(*n, name)
	}
}

// of returns a function that finds values by name.
func (n names) of(values [][]float32) func(name string) []float32 {
	return func(name string) []float32 {
		if i := slices.Index(n, name); i >= 0 {
			return values[i]
		}
		return nil
	}
}

// addSample adds the inputs that layers get in a sample.
func (c *calibration) addSample(ctx context.Context, in *inputs, m *moments, sample int, float, interim func(name string) []float32) error {
	for p, product := range c.layers[in.layers[0]].Products {
		x := interim(product.Input)
		if len(x)%m.k != 0 {
			return fmt.Errorf("value %q has %d elements, not rows of %d", product.Input, len(x), m.k)
		}
		rows := len(x) / m.k
		var ys [][]float32
		if c.Best {
			for j, i := range in.layers {
				y, err := c.aim(c.layers[i].Products[p], rows*m.targets[j].n, float, interim)
				if err != nil {
					return err
				}
				ys = append(ys, y)
			}
		}
		row := make([][]float32, len(ys))
		for r := range rows {
			for j, y := range ys {
				n := m.targets[j].n
				row[j] = y[r*n : (r+1)*n]
			}
			if err := m.add(ctx, c.workers, c.held(sample, r), x[r*m.k:(r+1)*m.k], row); err != nil {
				return err
			}
		}
	}
	return nil
}

// aim returns what a product should be: what it is in the float model, plus what the value beside
// it lacks in the other one.
func (c *calibration) aim(p Product, n int, float, interim func(name string) []float32) ([]float32, error) {
	y := float(p.Output)
	if len(y) != n {
		return nil, fmt.Errorf("value %q has %d elements, not %d", p.Output, len(y), n)
	}
	was, is := float(p.Beside), interim(p.Beside)
	if len(was) != n || len(is) != n {
		return y, nil
	}
	sum := make([]float32, n)
	for i := range sum {
		sum[i] = y[i] + (was[i] - is[i])
	}
	return sum, nil
}

// solve finds the codes of the layers that share inputs.
func (c *calibration) solve(ctx context.Context, in *inputs, m *moments) error {
	s, err := newSolver(ctx, c, m)
	if err != nil {
		return err
	}
	for j, i := range in.layers {
		w := c.layers[i].Weight
		found := c.store.add(w)
		e, err := s.layer(ctx, w, m.targets[j], found)
		if err != nil {
			return err
		}
		if e.broken {
			found = nil
		}
		c.Found[i], c.Notes[i] = found, e.note
		if e.mse > 0 {
			c.Error.Layers++
		}
		c.Error.Found += e.found
		c.Error.MSE += e.mse
		if e.lost {
			c.Error.Lost++
		}
		c.advance(w)
	}
	return nil
}

// advance tells that a weight is done.
func (c *calibration) advance(w *quantize.Weight) {
	c.done += w.Elements()
	if c.Progress != nil {
		c.Progress(c.done, c.total)
	}
}

// algorithm is the algorithm in words.
func (c *calibration) algorithm() string {
	if c.Best {
		return "best"
	}
	return "gptq"
}
