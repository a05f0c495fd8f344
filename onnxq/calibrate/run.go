package calibrate

import (
	"context"

	"golang.org/x/sync/errgroup"

	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
)

// Run runs models side by side on the samples that are wanted. While do looks at a sample, they
// run on the next one.
func (d *Data) Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	type result struct {
		sample int
		values [][]onnxq.Value
	}
	results := make(chan result)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(results)
		return d.each(ctx, models, names, wanted, func(sample int, values [][]onnxq.Value) error {
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

// each runs models on samples, and calls do with the values of each.
func (d *Data) each(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	engine := d.engine.Beside(len(models))
	var sessions []execute.Session
	for i, path := range models {
		s, err := engine.Open(ctx, path, names[i]...)
		if err != nil {
			return err
		}
		defer s.Close()
		sessions = append(sessions, s)
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
		values := make([][]onnxq.Value, len(models))
		var g errgroup.Group
		for i, s := range sessions {
			g.Go(func() error {
				results, err := s.Run(inputs, names[i]...)
				for _, t := range results {
					v := onnxq.Value{Dims: t.Dims}
					if t.IsFloat() {
						v.Data = t.TakeFloat32s()
					}
					values[i] = append(values[i], v)
				}
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
