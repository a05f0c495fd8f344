package layerfit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/quantize"
	"onnxquant/internal/rows"
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

// observe adds up the moments of a group, by inputs and part.
func (c *calibration) observe(ctx context.Context, group []*inputs) ([][]*moments, error) {
	var sums [][]*moments
	var float, interim names
	for _, in := range group {
		k := int(c.layers[in.layers[0]].Weight.K)
		parts := make([]*moments, in.parts)
		for part := range parts {
			var targets []*target
			for _, i := range in.layers {
				targets = append(targets, newTarget(k, c.layers[i].columns(), c.targets(c.layers[i])))
			}
			parts[part] = newMoments(k, in.parts, targets)
		}
		sums = append(sums, parts)
		for _, i := range in.layers {
			for _, p := range c.layers[i].Products {
				interim.add(p.Input)
				interim.add(p.Initial)
				if c.targets(c.layers[i]) {
					for _, name := range []string{p.Output, p.Beside} {
						float.add(name)
						interim.add(name)
					}
				}
			}
		}
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
	err = c.activations.Run(ctx, models, wanted, func(int) bool { return true }, func(sample int, values [][]rows.Value) error {
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
	for _, parts := range sums {
		for _, m := range parts {
			if err := m.flush(ctx, c.workers); err != nil {
				return nil, err
			}
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
func (n names) of(values []rows.Value) func(name string) rows.Value {
	return func(name string) rows.Value {
		if i := slices.Index(n, name); i >= 0 {
			return values[i]
		}
		return rows.Value{}
	}
}

// mostPatches is how many rows of a sample are added up at most, where a sample has many: a
// convolution reads a patch for each element of its output.
const mostPatches = 1024

// rowsOf returns the rows that a product reads in a sample.
func (c *calibration) rowsOf(p Product, k, parts, sample int, interim func(name string) rows.Value) (rows.Some, error) {
	all, err := p.Operation.Rows(interim(p.Input), interim(p.Initial), k*parts)
	if err != nil {
		return rows.Some{}, fmt.Errorf("value %q: %w", p.Input, err)
	}
	most := all.Len()
	if _, ok := p.Operation.(rows.Convolution); ok {
		most = mostPatches
		if c.activations.Len() >= tenth && c.held(sample, 0) {
			_, held := rowsAtOnce(parts)
			most = held*tenth/c.activations.Len() + 1
		}
	}
	return rows.Some{All: all, N: most, First: sample}, nil
}

// addSample adds the inputs that layers get in a sample.
func (c *calibration) addSample(ctx context.Context, in *inputs, parts []*moments, sample int, float, interim func(name string) rows.Value) error {
	k := parts[0].k
	for p, product := range c.layers[in.layers[0]].Products {
		if len(interim(product.Input).Data) == 0 { // in a branch that did not run
			continue
		}
		read, err := c.rowsOf(product, k, len(parts), sample, interim)
		if err != nil {
			return err
		}
		lacks := make([]rows.Value, len(in.layers)) // none: it is not known
		whole := make([][]float32, len(in.layers))
		for j, i := range in.layers {
			if l := c.layers[i]; c.targets(l) {
				n := len(parts) * parts[0].targets[j].n
				if lacks[j], err = lack(l.Products[p], read.All.Len()*n, float, interim); err != nil {
					return err
				}
				whole[j] = make([]float32, n)
			}
		}
		y := make([][]float32, len(in.layers))
		for r := range read.Len() {
			x := read.Input(r)
			of := make([][]float32, len(whole))
			for j := range whole {
				if whole[j] != nil {
					of[j] = read.Output(r, lacks[j], whole[j])
				}
			}
			for part, m := range parts {
				for j := range of {
					if n := m.targets[j].n; of[j] != nil {
						y[j] = of[j][part*n:][:n]
					}
				}
				if err := m.add(ctx, c.workers, c.held(sample, r), x[part*k:][:k], y); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lack returns what a product of n elements lacks: what it is in the float model less what the
// other model's inputs make of the same weight, and what the value beside it lacks.
func lack(p Product, n int, float, interim func(name string) rows.Value) (rows.Value, error) {
	want, have := float(p.Output), interim(p.Output)
	if len(want.Data) != n || len(have.Data) != n {
		return want, fmt.Errorf("value %q has %d and %d elements, not %d", p.Output, len(want.Data), len(have.Data), n)
	}
	was, is := float(p.Beside), interim(p.Beside)
	beside := len(was.Data) == n && len(is.Data) == n
	sum := make([]float32, n)
	for i := range sum {
		sum[i] = want.Data[i] - have.Data[i]
		if beside {
			sum[i] += was.Data[i] - is.Data[i]
		}
	}
	return rows.Value{Dims: want.Dims, Data: sum}, nil
}

// solve finds the codes of the layers that share inputs, a part of their columns after the other.
func (c *calibration) solve(ctx context.Context, in *inputs, parts []*moments) error {
	found := make([]*quantize.Found, len(in.layers))
	all := make([]sums, len(in.layers))
	for j, i := range in.layers {
		found[j] = c.store.add(c.layers[i].Weight)
	}
	why, few := "", false
	for part, m := range parts {
		few = few || m.rows < int64(m.k)
		s, err := newSolver(ctx, c, m)
		if err != nil {
			return err
		}
		if why == "" {
			why = s.why
		}
		for j, i := range in.layers {
			e, err := s.panels(ctx, c.layers[i].Weight, part, m.targets[j], found[j])
			if err != nil {
				return err
			}
			all[j].add(e)
		}
		parts[part] = nil
	}
	if few {
		c.Error.Few += len(in.layers)
	}
	for j, i := range in.layers {
		if err := c.settle(ctx, i, found[j], all[j], why); err != nil {
			return err
		}
	}
	return nil
}

// settle keeps the codes of a layer, or those of mse if their error is less. why explains that no
// others were found.
func (c *calibration) settle(ctx context.Context, layer int, found *quantize.Found, e sums, why string) error {
	w := c.layers[layer].Weight
	defer c.advance(w)
	switch {
	case e.broken:
		return nil
	case !e.calibrated:
		c.Notes[layer] = why
	case e.comparable():
		c.Error.Layers++
		c.Error.MSE += e.mse / e.signal
		c.Error.Found += min(e.found, e.mse) / e.signal
	}
	c.Found[layer] = found
	if e.signal == 0 || e.found <= e.mse {
		return nil
	}
	c.Error.Lost++
	c.Notes[layer] = fmt.Sprintf("%s has an error of %.3g of the output on held-out rows, mse %.3g", c.algorithm(), math.Sqrt(e.found/e.signal), math.Sqrt(e.mse/e.signal))
	return c.leastAngle(ctx, c.layers[layer], found)
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
	switch {
	case c.Best:
		return "best"
	case c.Clip:
		return "awq"
	}
	return "gptq"
}
