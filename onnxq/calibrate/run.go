package calibrate

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/kept"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
)

// Run runs parts of models side by side on the samples that are wanted. While do looks at a sample, they
// run on the next one.
func (d *Data) Run(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	type result struct {
		sample int
		values [][]onnxq.Value
	}
	results := make(chan result)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(results)
		return d.each(ctx, parts, wanted, func(sample int, values [][]onnxq.Value) error {
			select {
			case results <- result{sample, values}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	g.Go(func() error {
		for r := range results {
			if err := do(r.sample, r.values); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// each runs parts on samples, and calls do with the values of each.
func (d *Data) each(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	engine := d.engine.Beside(len(parts))
	var all []*part
	for _, given := range parts {
		p, err := openPart(ctx, engine, given)
		if err != nil {
			return err
		}
		defer p.close()
		all = append(all, p)
	}
	sample := -1
	for inputs, err := range d.samples.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if sample++; !wanted(sample) {
			continue
		}
		values := make([][]onnxq.Value, len(all))
		var g errgroup.Group
		for i, p := range all {
			g.Go(func() (err error) {
				values[i], err = p.run(sample, inputs)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return d.samples.Failed(ctx, sample, inputs, err)
		}
		if err := do(sample, values); err != nil {
			return err
		}
	}
	return nil
}

// part is a part that is open.
type part struct {
	onnxq.Part
	session execute.Session // nil if all values are kept already
	asked   []string        // values that it computes
}

func openPart(ctx context.Context, engine *observe.Engine, given onnxq.Part) (*part, error) {
	p := &part{Part: given, asked: slices.Concat(given.Values, given.Keep)}
	if p.From != "" {
		before, err := kept.Read(p.From, 0)
		if err != nil {
			return nil, notKept(err)
		}
		p.asked = slices.DeleteFunc(p.asked, func(name string) bool { return find(before, name) != nil })
	}
	slices.Sort(p.asked)
	p.asked = slices.Compact(p.asked)
	if len(p.asked) == 0 {
		return p, nil
	}
	var err error
	p.session, err = engine.Open(ctx, p.Path, p.asked...)
	return p, err
}

func (p *part) close() {
	if p.session != nil {
		p.session.Close()
	}
}

// run runs the part on a sample.
func (p *part) run(sample int, inputs []*execute.Tensor) ([]onnxq.Value, error) {
	var known []*execute.Tensor
	if p.From != "" {
		var err error
		if known, err = kept.Read(p.From, sample); err != nil {
			return nil, notKept(err)
		}
	}
	if p.session != nil {
		computed, err := p.session.Run(slices.Concat(inputs, known), p.asked...)
		if err != nil {
			return nil, err
		}
		known = append(known, computed...)
	}
	if p.To != "" {
		var keep []*execute.Tensor
		for _, name := range p.Keep {
			keep = append(keep, find(known, name))
		}
		if err := kept.Write(p.To, sample, keep); err != nil {
			return nil, notKept(err)
		}
	}
	values := make([]onnxq.Value, len(p.Values))
	for i, name := range p.Values {
		values[i] = valueOf(find(known, name))
	}
	return values, nil
}

func find(values []*execute.Tensor, name string) *execute.Tensor {
	i := slices.IndexFunc(values, func(t *execute.Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return values[i]
}

func notKept(err error) error { return fmt.Errorf("%w: %w", onnxq.ErrNotKept, err) }

// Kept describes the values that Run kept in a folder.
func (d *Data) Kept(folder string) ([]onnxq.Kept, error) {
	values, err := kept.Read(folder, 0)
	if err != nil {
		return nil, notKept(err)
	}
	var all []onnxq.Kept
	for _, t := range values {
		all = append(all, onnxq.Kept{Name: t.Name, Type: t.DType, Rank: len(t.Dims)})
	}
	return all, nil
}
