package layerfit

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

// shifts replaces the sums of a target by how far the weights are from the least-squares solution for the wanted outputs.
// These differ from the weights' own outputs because the codes of earlier layers changed the inputs. Many columns are solved at
// a time: the factor is read once for all of them.
func (s *solver) shifts(ctx context.Context, t *target) error {
	if t.g == nil || !s.known || s.factor == nil {
		return nil
	}
	k, width := s.m.k, min(int(shiftPanels*s.c.panelWidth(int64(s.m.k))), (t.n-1)/s.c.workers+1)
	return work.Each(ctx, s.c.workers, (t.n-1)/width+1, func(ctx context.Context, buffers *[]float32, i int) error {
		first := i * width
		n := min(width, t.n-first)
		by := linalg.Of(buffer.Grow(buffers, int64(n*k)), n, k)
		g := linalg.Of(t.g, k, t.n).Part(0, first, k, n)
		linalg.Transpose(by, g)
		scale := 1 / s.mean
		for i, v := range by.Data {
			by.Data[i] = float32(float64(v) * scale)
		}
		if err := s.factor.Solve(ctx, 1, by); err != nil {
			return err
		}
		linalg.Transpose(g, by)
		return nil
	})
}

// shiftPanels is how many panels are solved at a time. Their buffers are smaller than those of a panel.
const shiftPanels = 4

// shift moves the weights to the least-squares solution.
func (p *panel) shift() {
	if p.target.g == nil {
		return
	}
	n := int(p.n)
	for i := range p.m.k {
		row := p.columns.Weights[i*n:][:n]
		for j, v := range p.target.g[i*p.target.n+int(p.first):][:n] {
			row[j] += v
		}
	}
}
