package tune

import "math"

// belief is what is known about the largest loss with which a candidate reaches the goal: a distribution over logarithms
// of losses. Trials that reach the goal, and those that do not, narrow it.
type belief struct {
	at     [beliefPoints]float64 // logarithms of losses
	weight [beliefPoints]float64
}

const beliefPoints = 400

// newBelief expects the limit near a loss; spread is the standard deviation of its logarithm.
func newBelief(loss, spread float64) *belief {
	const low, high = -32.0, 8.0
	b := &belief{}
	for i := range b.at {
		b.at[i] = low + (high-low)*float64(i)/(beliefPoints-1)
		x := (b.at[i] - logOf(loss)) / spread
		b.weight[i] = math.Exp(-x*x/2) + 1e-9 // anything is possible
	}
	b.normalize()
	return b
}

func (b *belief) normalize() {
	sum := 0.0
	for _, w := range b.weight {
		sum += w
	}
	for i := range b.weight {
		b.weight[i] /= sum
	}
}

// saw notes that a candidate with a loss reached the goal, or did not. spread is the uncertainty of the logarithm of the loss.
func (b *belief) saw(loss, spread float64, reached bool) {
	const strange = 0.02 // outcomes that have other reasons
	for i := range b.weight {
		p := normal((b.at[i] - logOf(loss)) / spread)
		if !reached {
			p = 1 - p
		}
		b.weight[i] *= strange + (1-strange)*p
	}
	b.normalize()
}

// chance is the probability that a candidate with a loss reaches the goal.
func (b *belief) chance(loss, spread float64) (p float64) {
	for i, w := range b.weight {
		p += w * normal((b.at[i]-logOf(loss))/spread)
	}
	return p
}

// normal is the distribution function of the standard normal distribution.
func normal(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// logOf is the logarithm of a loss, of no loss that of a very small one.
func logOf(loss float64) float64 { return math.Log(min(max(loss, 1e-13), 1e3)) }
