// Package knapsack solves the multiple-choice knapsack problem: it takes one choice of each class such
// that the sum of the weights is at most a capacity and the sum of the costs is minimal. [Solve] gets
// the classes, which it only reads, and returns a [Solution], which the caller owns.
//
//  1. The linear relaxation, which may mix the choices of a class, is solved on the convex
//     hulls of the classes (Sinha and Zoltners 1979). It gives a lower bound of the cost and
//     a multiplier λ, the price of weight in cost.
//  2. The regret of a choice is cost + λ·weight, minus the minimum of that sum in its class. The cost
//     of a solution is the lower bound, plus its regrets, plus λ times the unused capacity.
//  3. The excess is the cost of the best known solution minus the lower bound. A choice or partial
//     solution with a regret of at least the excess cannot be part of a better solution. Dynamic
//     programming over the classes drops it. It also drops partial solutions that others dominate in
//     weight and cost (Nemhauser and Ullmann 1969).
//
// The result is optimal unless too many partial solutions remain. Then the ones with the highest regret
// are dropped too, and Solution.Bound limits the distance to the optimum.
package knapsack

import (
	"cmp"
	"math"
	"slices"
)

// Choice is one choice of a class. Both numbers are finite and not negative.
type Choice struct{ Cost, Weight float64 }

// Solution takes one choice of each class.
type Solution struct {
	Pick         []int // index of the choice, per class
	Cost, Weight float64
	Bound        float64 // no solution costs less
}

// Limits on the number of partial solutions. It is lower if there are many classes, because
// the time is proportional to the product.
const (
	maxStates = 1 << 13
	minStates = 1 << 8
	maxWork   = 1 << 20
)

// Solve returns the best solution found; ok is false if even the lightest choices exceed
// the capacity. Every class must have a choice.
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
	useful   [][]int // undominated choices of each class, the lightest first
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

// step goes from one choice on the hull of a class to the next heavier and cheaper one.
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

// start picks the lightest choices, and returns the steps from there on, the steepest first.
func (p *problem) start() (steps []step) {
	p.pick = make([]int, len(p.classes))
	for i, u := range p.useful {
		p.pick[i] = u[0]
		steps = append(steps, p.hull(i)...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.save*a.weight, a.save*b.weight) })
	return steps
}

// Frontier returns the sums of the solutions on the lower convex hull of all solutions, the lightest
// first. No solution is lower in both sums, and none is below the line between two neighbours. Every
// class must have a choice.
func Frontier(classes [][]Choice) []Choice {
	p := newProblem(classes, 0)
	steps := p.start()
	at := Choice{p.cost(p.pick), p.weight(p.pick)}
	line := []Choice{at}
	for _, s := range steps {
		at = Choice{at.Cost - s.save, at.Weight + s.weight}
		line = append(line, at)
	}
	return line
}

// relax solves the relaxation. Its choices that are not mixed become the best solution so
// far.
func (p *problem) relax() (lambda, bound float64) {
	steps := p.start()
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

// priced returns the minimum of cost + lambda·weight over choices of a class.
func (p *problem) priced(class int, choices []int, lambda float64) float64 {
	least := math.Inf(1)
	for _, j := range choices {
		c := p.classes[class][j]
		least = min(least, c.Cost+lambda*c.Weight)
	}
	return least
}

// improve replaces single choices as long as that saves cost and fits into the capacity,
// the largest saving first.
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

// state is a partial solution: it has choices for the first classes only.
type state struct {
	weight, cost, regret float64
	last                 *taken
}

// taken is a linked list of choices, the last class first.
type taken struct {
	choice int
	before *taken
}

// search looks for solutions with a cost below bound + excess. It returns the final lower
// bound.
func (p *problem) search(lambda, bound, excess float64) float64 {
	states := []state{{}}
	lightestLeft := p.lightest()
	dropped := math.Inf(1) // the least regret of a dropped state
	limit := min(max(maxWork/len(p.classes), minStates), maxStates)
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
		if len(states) > limit {
			slices.SortFunc(states, func(a, b state) int { return cmp.Compare(a.regret, b.regret) })
			dropped = min(dropped, states[limit].regret)
			states = states[:limit]
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
	return bound + min(dropped, p.cost(p.pick)-bound)
}

// bySpread lists the classes by the spread of their weights, the largest first: classes with a small
// spread then fit into the remaining capacity.
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

// undominated removes the states that another state beats in weight and cost.
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
