// Package knapsack solves the multiple-choice knapsack problem: of each class one choice
// is taken, so that the sum of their weights is at most a capacity and the sum of their
// costs the least.
//
// The linear relaxation, in which choices can be mixed, is solved by its convex hull
// (Sinha and Zoltners 1979). Its multiplier λ prices weight in cost, so every choice costs
// some more than the cheapest of its class at that price: its regret. The costs of a
// solution are the bound of the relaxation, plus its regrets, plus what capacity it leaves
// over. So choices whose regret alone is above what a known solution costs beyond the bound
// are out, and of partial solutions those are kept that no other one beats in weight and
// cost, and whose regret is below that (Nemhauser and Ullmann's dynamic programming, with
// bounds). That finds the optimum, unless there are too many partial solutions: then those of
// most regret are given up, and the bound says how far from the optimum the result may be.
package knapsack

import (
	"cmp"
	"math"
	"slices"
)

// Choice is one of a class. Neither number is negative; both are finite.
type Choice struct{ Cost, Weight float64 }

// Solution is a choice of each class.
type Solution struct {
	Pick         []int // the index of the choice, for each class
	Cost, Weight float64
	Bound        float64 // no solution costs less
}

// How many partial solutions are kept: fewer if there are many classes, for time is the
// product.
const (
	maxStates   = 1 << 13
	leastStates = 1 << 8
	maxWork     = 1 << 20
)

// Solve returns the solution; ok is false if even the lightest choices are above the
// capacity. Every class has a choice.
func Solve(classes [][]Choice, capacity float64) (s Solution, ok bool) {
	p := newProblem(classes, capacity)
	if p.lightest() > capacity {
		return Solution{}, false
	}
	lambda, bound := p.relax()
	p.improve()
	if excess := p.cost(p.pick) - bound; excess > math.Abs(bound)*1e-12 {
		bound = p.search(lambda, bound, excess)
	}
	s = Solution{Pick: p.pick, Cost: p.cost(p.pick), Weight: p.weight(p.pick)}
	s.Bound = min(bound, s.Cost)
	return s, true
}

type problem struct {
	classes  [][]Choice
	capacity float64
	useful   [][]int // of each class those that no other beats, the lightest first
	pick     []int   // the best solution so far
}

func newProblem(classes [][]Choice, capacity float64) *problem {
	p := &problem{classes: classes, capacity: capacity}
	for _, c := range classes {
		order := make([]int, len(c))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(c[a].Weight, c[b].Weight), cmp.Compare(c[a].Cost, c[b].Cost))
		})
		kept := order[:0]
		for _, i := range order {
			if len(kept) == 0 || c[i].Cost < c[kept[len(kept)-1]].Cost {
				kept = append(kept, i)
			}
		}
		p.useful = append(p.useful, kept)
	}
	return p
}

func (p *problem) cost(pick []int) (sum float64) {
	for i, j := range pick {
		sum += p.classes[i][j].Cost
	}
	return sum
}

func (p *problem) weight(pick []int) (sum float64) {
	for i, j := range pick {
		sum += p.classes[i][j].Weight
	}
	return sum
}

// lightest returns the least weight of a solution.
func (p *problem) lightest() (sum float64) {
	for i, u := range p.useful {
		sum += p.classes[i][u[0]].Weight
	}
	return sum
}

// step goes from one choice on a class's hull to the next heavier and cheaper one.
type step struct {
	class, to    int
	weight, save float64
}

// hull returns the steps along the lower convex hull of a class.
func (p *problem) hull(class int) []step {
	c := p.classes[class]
	var h []int
	slope := func(a, b int) float64 { return (c[a].Cost - c[b].Cost) / (c[b].Weight - c[a].Weight) }
	for _, i := range p.useful[class] {
		for len(h) > 1 && slope(h[len(h)-2], h[len(h)-1]) <= slope(h[len(h)-1], i) {
			h = h[:len(h)-1]
		}
		h = append(h, i)
	}
	var steps []step
	for k := 1; k < len(h); k++ {
		a, b := c[h[k-1]], c[h[k]]
		steps = append(steps, step{class, h[k], b.Weight - a.Weight, a.Cost - b.Cost})
	}
	return steps
}

// relax solves the relaxation, and takes its whole part for the best solution so far.
func (p *problem) relax() (lambda, bound float64) {
	var steps []step
	p.pick = make([]int, len(p.classes))
	for i, u := range p.useful {
		p.pick[i] = u[0]
		steps = append(steps, p.hull(i)...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.save*a.weight, a.save*b.weight) })
	weight, cost := p.weight(p.pick), p.cost(p.pick)
	for _, s := range steps {
		if weight+s.weight > p.capacity {
			lambda = s.save / s.weight
			break
		}
		p.pick[s.class] = s.to
		weight, cost = weight+s.weight, cost-s.save
	}
	bound = -lambda * p.capacity
	for i, u := range p.useful {
		bound += p.priced(i, u, lambda)
	}
	return lambda, bound
}

// priced returns the least that a choice of a class costs, weight at the price lambda.
func (p *problem) priced(class int, choices []int, lambda float64) float64 {
	least := math.Inf(1)
	for _, j := range choices {
		c := p.classes[class][j]
		least = min(least, c.Cost+lambda*c.Weight)
	}
	return least
}

// improve takes single choices that fit into the capacity left, those that save most
// first, until there are none.
func (p *problem) improve() {
	left := p.capacity - p.weight(p.pick)
	for {
		class, to, most := 0, 0, 0.0
		for i, u := range p.useful {
			now := p.classes[i][p.pick[i]]
			for _, j := range u {
				c := p.classes[i][j]
				if c.Weight-now.Weight <= left && now.Cost-c.Cost > most {
					class, to, most = i, j, now.Cost-c.Cost
				}
			}
		}
		if most == 0 {
			return
		}
		p.pick[class] = to
		left = p.capacity - p.weight(p.pick)
	}
}

// state is a solution of some first classes.
type state struct {
	weight, cost, regret float64
	last                 *taken
}

// taken is the choice of a class, and those before.
type taken struct {
	choice int
	before *taken
}

// search looks for solutions that cost less than excess above the bound, and returns the
// bound that is known in the end.
func (p *problem) search(lambda, bound, excess float64) float64 {
	states := []state{{}}
	lightestLeft := p.lightest()
	givenUp := math.Inf(1) // the least regret of a state that was
	most := min(max(maxWork/len(p.classes), leastStates), maxStates)
	order := p.bySpread()
	for _, i := range order {
		u := p.useful[i]
		base := p.priced(i, u, lambda)
		lightestLeft -= p.classes[i][u[0]].Weight
		var next []state
		for _, j := range u {
			c := p.classes[i][j]
			regret := c.Cost + lambda*c.Weight - base
			if regret >= excess {
				continue
			}
			for _, s := range states {
				if s.regret+regret < excess && s.weight+c.Weight+lightestLeft <= p.capacity*(1+1e-12) {
					next = append(next, state{s.weight + c.Weight, s.cost + c.Cost, s.regret + regret, &taken{j, s.last}})
				}
			}
		}
		states = undominated(next)
		if len(states) > most {
			slices.SortFunc(states, func(a, b state) int { return cmp.Compare(a.regret, b.regret) })
			givenUp = min(givenUp, states[most].regret)
			states = states[:most]
		}
	}
	for _, s := range states {
		pick := make([]int, len(p.classes))
		for k, t := len(order)-1, s.last; t != nil; k, t = k-1, t.before {
			pick[order[k]] = t.choice
		}
		if p.weight(pick) <= p.capacity && p.cost(pick) < p.cost(p.pick) {
			p.pick = pick
		}
	}
	return bound + min(givenUp, p.cost(p.pick)-bound)
}

// bySpread lists the classes, those whose weights differ most first: the others fit into
// what these leave.
func (p *problem) bySpread() []int {
	order := make([]int, len(p.classes))
	spread := make([]float64, len(p.classes))
	for i, u := range p.useful {
		order[i] = i
		spread[i] = p.classes[i][u[len(u)-1]].Weight - p.classes[i][u[0]].Weight
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(spread[b], spread[a]) })
	return order
}

// undominated returns the states that no other one beats in weight and cost.
func undominated(states []state) []state {
	slices.SortFunc(states, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.cost, b.cost))
	})
	kept := states[:0]
	for _, s := range states {
		if len(kept) == 0 || s.cost < kept[len(kept)-1].cost {
			kept = append(kept, s)
		}
	}
	return kept
}
