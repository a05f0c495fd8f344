package secondorder

import "onnxquant/internal/buffer"

// Search has the buffers of one worker.
type Search struct {
	rounder Rounder
	descent Descent
	best    Columns
	errors  []float64 // eᵀHe of the best codes of each column
}

// A round is Factor.Round with the scales of the round before, and descent. Errors stop falling
// after about four passes, and after about four rounds.
const (
	Rounds = 4
	passes = 4
)

// SearchPasses is how often a Search of all Rounds multiplies the Hessian by all columns.
const SearchPasses = Rounds * (passes + 1.5) // with rounding, and the slope that descent begins with

// Find sets codes and scales of columns, whose zero points and first scales are known. Descent fits
// scales to codes; rounding finds other codes for these scales. A few rounds of both reach codes that
// neither reaches alone. Each column takes the codes of its best round. h is the Hessian from which f
// was made.
func (s *Search) Find(f *Factor, c *Columns, h []float32, format Format, rounds int) {
	s.best.Resize(c.K, c.N, format)
	errors := buffer.Grow(&s.errors, int64(c.N))
	for round := range rounds {
		f.Round(&s.rounder, c, format)
		s.descent.Improve(c, h, format, passes)
		for j, e := range s.descent.errors {
			if round == 0 || e < errors[j] {
				errors[j] = e
				s.best.take(c, j)
			}
		}
	}
	copy(c.Codes, s.best.Codes)
	copy(c.Scales, s.best.Scales)
}

// take copies the codes and scales of a column.
func (c *Columns) take(from *Columns, column int) {
	for i := column; i < len(c.Codes); i += c.N {
		c.Codes[i] = from.Codes[i]
	}
	for i := column; i < len(c.Scales); i += c.N {
		c.Scales[i] = from.Scales[i]
	}
}
