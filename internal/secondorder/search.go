package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
)

// Search has the buffers of one worker.
type Search struct {
	rounder Rounder
	descent Descent
	refine  Refinement
	best    Columns
	errors  []float64 // eᵀHe of the best codes of each column
}

// A round is Factor.Round with the scales of the round before, and descent. Errors stop falling after about four passes.
const (
	passes   = 4
	scalings = 2 // in a round of Refine
)

// Columns are short up to so many elements. They have more rounds, and a slope of a whole product: the time for their codes is
// little.
const short = 1024

// roundsOf is how many rounds Refine makes. Another round may find better codes by chance. The longer a column, the less
// its codes differ by chance.
func roundsOf(k int, format Format) int {
	switch {
	case format.Fixed:
		return 1 // another would find the same codes
	case k <= short:
		return 4
	case k <= 2048:
		return 3
	}
	return 1
}

// RefinePasses is how often Refine multiplies the Hessian by columns of K elements: half a time for rounding, half a time
// for the slope, once if columns are short, and once for scales each time.
func RefinePasses(k int, format Format) float64 {
	round := 1.0
	if k <= short {
		round = 1.5
	}
	if !format.Fixed {
		round += scalings
	}
	return float64(roundsOf(k, format)) * round
}

// Find sets codes and scales of columns, whose zero points and first scales are known. Descent fits
// scales to codes; rounding finds other codes for these scales. A few rounds of both reach codes that
// neither reaches alone. Each column takes the codes of its best round. h is the Hessian from which f
// was made.
func (s *Search) Find(f *Factor, c *Columns, h []float32, format Format, rounds int) {
	s.bestOf(c, format, rounds, func() []float64 {
		f.Round(&s.rounder, c, format)
		s.descent.Improve(c, h, format, passes)
		return s.descent.errors
	})
}

// Refine is Find in less time, with Refinement in place of Descent. Its codes are others.
func (s *Search) Refine(f *Factor, c *Columns, h linalg.Symmetric, format Format) {
	s.bestOf(c, format, roundsOf(c.K, format), func() []float64 {
		f.Round(&s.rounder, c, format)
		s.refine.Improve(f, &s.rounder, c, h, format)
		return s.refine.descent.errors
	})
}

// bestOf lets each column take the codes of its best round. round changes codes and returns the errors.
func (s *Search) bestOf(c *Columns, format Format, rounds int, round func() []float64) {
	s.best.Resize(c.K, c.N, format)
	errors := buffer.Grow(&s.errors, int64(c.N))
	for i := range rounds {
		for j, e := range round() {
			if i == 0 || e < errors[j] {
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
