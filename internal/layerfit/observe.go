package layerfit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
)

// heldOutEvery is 10: one sample in ten is held out. With fewer samples, one row in ten of each
// sample.
const heldOutEvery = 10

func (c *calibration) heldOut(sample, row int) bool {
	every := c.heldOutEvery()
	if c.activations.Len() < every {
		return row%every == every-1
	}
	if every == heldOutEvery {
		return HeldOut(sample)
	}
	return sample%every == every-1
}

// heldOutEvery is how many samples there are for one that is held out. With quantized activations codes follow the
// samples more closely, so more are held out.
func (c *calibration) heldOutEvery() int {
	if c.Quantized {
		return 4
	}
	return heldOutEvery
}

// HeldOut reports whether a sample is held out, if there are HoldsOut samples or more.
func HeldOut(sample int) bool { return sample%heldOutEvery == heldOutEvery-1 }

// HoldsOut is the least number of samples of which some are held out.
const HoldsOut = heldOutEvery

// observe runs the models over the samples and adds up the moments of parts of a group, by inputs and part. It calls
// seen after each sample.
func (c *calibration) observe(ctx context.Context, number int, spans []span, seen func()) ([][]*moments, error) {
	all, err := c.observeFrom(ctx, number, spans, seen)
	if errors.Is(err, ErrNotKept) {
		c.frontier.giveUp()
		return c.observeFrom(ctx, number, spans, seen)
	}
	return all, err
}

func (c *calibration) observeFrom(ctx context.Context, number int, spans []span, seen func()) ([][]*moments, error) {
	all := make([][]*moments, len(spans))
	var float, interim names
	for i, s := range spans {
		if r := c.routed(s.inputs); r != nil {
			spans[i].routes = r.Begin()
		}
		all[i] = c.noMoments(s)
		c.addNames(s.inputs, &float, &interim)
	}
	parts, err := c.parts(ctx, number, float, interim)
	if err != nil {
		return nil, err
	}
	every := func(int) bool { return true }
	err = c.activations.Run(ctx, parts, every, func(index int, values [][]operands.Value) error {
		s := &sample{index, float.finder(values[len(values)-1]), interim.finder(values[0])} // float may be empty
		for i, of := range spans {
			if err := c.addSample(ctx, of, all[i], s); err != nil {
				return err
			}
		}
		seen()
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, s := range spans {
		for _, m := range all[i] {
			if err := m.flush(ctx, c.workers); err != nil {
				return nil, err
			}
			if c.Quantized && !slices.ContainsFunc(s.layers, func(l int) bool { return !c.layers[l].Bias }) {
				m.center()
			}
		}
	}
	return all, nil
}

// noMoments returns the moments of parts before the first sample.
func (c *calibration) noMoments(in span) []*moments {
	k := int(c.layers[in.layers[0]].Weight.K)
	parts := make([]*moments, in.to-in.from)
	for part := range parts {
		var targets []*target
		for _, i := range in.layers {
			targets = append(targets, newTarget(k, c.layers[i].columns(), c.targets(c.layers[i])))
		}
		parts[part] = newMoments(k, in.parts, targets)
	}
	return parts
}

// addNames adds the names of the values to observe for some inputs: in the float model, and in the interim
// model with the codes found so far.
func (c *calibration) addNames(in *inputs, float, interim *names) {
	for _, i := range in.layers {
		for _, p := range c.layers[i].Products {
			interim.add(p.Input, p.Second)
			if c.targets(c.layers[i]) {
				float.add(p.Output, p.Beside)
				interim.add(p.Output, p.Beside)
			}
		}
	}
}

// parts writes the parts of models that compute the named values for a group: of the interim model, then of the
// float model if any value is needed from it.
func (c *calibration) parts(ctx context.Context, number int, float, interim names) ([]Part, error) {
	first, err := c.part(ctx, number, interimModel, interim)
	if err != nil || !c.sequential() {
		return []Part{first}, err
	}
	second, err := c.part(ctx, number, Float, float)
	return []Part{first, second}, err
}

func (c *calibration) part(ctx context.Context, number int, model string, values names) (p Part, err error) {
	var found []*quantize.Found
	if model == interimModel && c.sequential() {
		found = c.Found
	}
	if p, err = c.frontier.part(number, model); err != nil {
		return p, err
	}
	p.Values = values
	p.Path, err = c.Write(ctx, model, found, slices.Concat(values, p.Keep), p.From)
	return p, err
}

// names are names of values, each once.
type names []string

func (n *names) add(added ...string) {
	for _, name := range added {
		if name != "" && !slices.Contains(*n, name) {
			*n = append(*n, name)
		}
	}
}

// finder returns a function that finds values by name.
func (n names) finder(values []operands.Value) func(name string) operands.Value {
	return func(name string) operands.Value {
		if i := slices.Index(n, name); i >= 0 {
			return values[i]
		}
		return operands.Value{}
	}
}

// sample has the values that the models compute of a sample, by name.
type sample struct {
	index          int
	float, interim func(name string) operands.Value
}

// addSample adds the inputs that layers get in a sample.
func (c *calibration) addSample(ctx context.Context, of span, parts []*moments, s *sample) error {
	for p, product := range c.layers[of.layers[0]].Products {
		if len(s.interim(product.Input).Data) == 0 { // in a branch that did not run
			continue
		}
		add := func() error { return c.addProduct(ctx, of.inputs, parts, p, s) }
		if of.routes != nil {
			add = func() error { return c.addRouted(ctx, of, parts, product, s) }
		}
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// addProduct adds the rows that layers read in product p of each.
func (c *calibration) addProduct(ctx context.Context, in *inputs, parts []*moments, p int, s *sample) error {
	k := parts[0].k
	read, err := c.rowsOf(c.layers[in.layers[0]].Products[p], k, len(parts), s)
	if err != nil {
		return err
	}
	residuals := make([]operands.Value, len(in.layers)) // by layer
	whole := make([][]float32, len(in.layers))          // room for a row of the residual; nil if unknown
	for j, i := range in.layers {
		if l := c.layers[i]; c.targets(l) {
			n := len(parts) * parts[0].targets[j].n
			if residuals[j], err = s.residual(l.Products[p], read.All.Len()*n); err != nil {
				return err
			}
			whole[j] = make([]float32, n)
		}
	}
	y := make([][]float32, len(in.layers)) // of one part
	for r := range read.Len() {
		x := read.Input(r)
		of := make([][]float32, len(whole))
		for j := range whole {
			if whole[j] != nil {
				of[j] = read.Output(r, residuals[j], whole[j])
			}
		}
		for part, m := range parts {
			for j := range of {
				if n := m.targets[j].n; of[j] != nil {
					y[j] = of[j][part*n:][:n]
				}
			}
			if err := m.add(ctx, c.workers, c.heldOut(s.index, r), x[part*k:][:k], y); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostPatches limits the rows of one sample that are added up. A convolution has many: it reads a
// patch for each element of its output.
const mostPatches = 1024

// rowsOf returns the rows that a product reads in a sample.
func (c *calibration) rowsOf(p Product, k, parts int, s *sample) (operands.Some, error) {
	all, err := p.Operation.(operands.Dense).Rows(s.interim(p.Input), s.interim(p.Second), k*parts)
	if err != nil {
		return operands.Some{}, valueError(p.Input, err)
	}
	most := all.Len()
	if _, ok := p.Operation.(operands.Convolution); ok {
		most = mostPatches
		if every := c.heldOutEvery(); c.activations.Len() >= every && c.heldOut(s.index, 0) {
			_, held := rowsAtOnce(parts)
			most = held*every/c.activations.Len() + 1
		}
	}
	return operands.Some{All: all, N: most, First: s.index}, nil
}

func valueError(name string, err error) error { return fmt.Errorf("value %q: %w", name, err) }

// residual returns how far a product of n elements in the interim model is from the float model,
// including the residual of the value that is added to it.
func (s *sample) residual(p Product, n int) (operands.Value, error) {
	want, have := s.float(p.Output), s.interim(p.Output)
	if len(want.Data) != n || len(have.Data) != n {
		return want, fmt.Errorf("value %q has %d and %d elements, not %d", p.Output, len(want.Data), len(have.Data), n)
	}
	was, is := s.float(p.Beside), s.interim(p.Beside)
	beside := len(was.Data) == n && len(is.Data) == n
	sum := make([]float32, n)
	for i := range sum {
		sum[i] = want.Data[i] - have.Data[i]
		if beside {
			sum[i] += was.Data[i] - is.Data[i]
		}
	}
	return operands.Value{Dims: want.Dims, Data: sum}, nil
}
