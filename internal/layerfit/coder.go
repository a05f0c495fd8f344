package layerfit

import (
	"context"

	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
)

// coder finds the first codes of a panel's columns, and writes the last ones, in the way of the
// weight's format.
type coder interface {
	// mse sets the columns to the codes of algorithm mse. weighted improves them with errors weighted
	// by importance.
	mse(ctx context.Context) error
	weighted(ctx context.Context, importance []float32) error

	takeCodes()         // takes the codes over from the columns
	decode(x []float32) // K rows
	write(to *quantize.Found) error

	keep()    // keeps a copy of the codes
	restore() // takes them back
}

func (p *panel) coderOf(f secondorder.Format) coder {
	if p.weight.Encoding != nil {
		return p.blocks.of(p, f)
	}
	return scalars{p, f}
}

// scalars is the coder of formats with a codec.
type scalars struct {
	panel  *panel
	format secondorder.Format
}

func (s scalars) mse(context.Context) error {
	s.panel.columns.FitBlocks(s.format, s.panel.weight.MSE())
	return nil
}

func (s scalars) weighted(_ context.Context, importance []float32) error {
	s.panel.columns.FitGrid(s.format, importance)
	return nil
}

func (s scalars) takeCodes() {}

func (s scalars) keep()    { s.panel.kept.Take(&s.panel.columns, s.format) }
func (s scalars) restore() { s.panel.columns.Take(&s.panel.kept, s.format) }

func (s scalars) decode(x []float32) { s.panel.columns.Decode(s.format, x) }

func (s scalars) write(to *quantize.Found) error {
	p, c := s.panel, &s.panel.columns
	return p.weight.WriteColumns(to, p.at, p.n, c.Codes, c.Scales, c.Zeros)
}
