package tune

import "math"

// surrogate learns how far losses are from their estimates. The errors of all estimates are one Gaussian process over
// candidates: what a trial shows corrects those like it most, others with the same algorithm less, the rest least.
// Estimates that miss by more than they should widen all that is left open.
type surrogate struct {
	seen   []*candidate
	factor [][]float64 // rows of the Cholesky factor of the covariance of what was seen
	missed []float64   // errors of the estimates at their time, over their standard deviations
}

// exact is the standard deviation of the logarithm of a measured loss.
const exact = 0.15

// likeness is the correlation of the errors of two estimates.
func likeness(a, b *candidate) float64 {
	if a == b {
		return 1
	}
	if a.kind == Half || b.kind == Half {
		return 0 // a rounding of what stays in float says nothing of codes
	}
	x := 0.3
	if a.family() == b.family() {
		x += 0.15
	}
	if a.group() == b.group() {
		x += 0.15
	}
	if a.kind == b.kind {
		x += 0.1
	}
	if a.class == b.class {
		x += 0.2 * math.Exp(-math.Abs(logOf(a.noise)-logOf(b.noise)))
	}
	return x
}

// project returns the part of a candidate that what was seen explains, and the variance that it leaves.
func (g *surrogate) project(c *candidate) (v []float64, left float64) {
	v, left = make([]float64, len(g.seen)), c.spread*c.spread
	for i, row := range g.factor {
		sum := c.spread * g.seen[i].spread * likeness(c, g.seen[i])
		for j := range i {
			sum -= row[j] * v[j]
		}
		v[i] = sum / row[i]
		left -= v[i] * v[i]
	}
	return v, max(left, 0)
}

// saw notes the logarithm of a measured loss over its estimate, with the standard deviation of what the samples show.
func (g *surrogate) saw(c *candidate, off, doubt float64) {
	v, left := g.project(c)
	deviation := math.Sqrt(left + doubt*doubt)
	for i, x := range g.missed {
		off -= v[i] * x
	}
	g.seen, g.factor, g.missed = append(g.seen, c), append(g.factor, append(v, deviation)), append(g.missed, off/deviation)
}

// of returns what to expect of the logarithm of a loss over its estimate, and its standard deviation.
func (g *surrogate) of(c *candidate) (off, deviation float64) {
	const prior, least, most = 4, 0.5, 9 // as so many trials whose errors were as expected
	v, left := g.project(c)
	sum := float64(prior)
	for i, x := range g.missed {
		off += v[i] * x
		sum += x * x
	}
	scale := min(max(sum/float64(prior+len(g.missed)), least), most)
	return off, math.Sqrt(left * scale)
}
