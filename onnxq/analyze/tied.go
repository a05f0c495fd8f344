package analyze

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/knapsack"
	"onnxquant/internal/rewrite"
	"onnxquant/spec"
)

// Weights that one QMoE reads must have the same format, or none of them can be a part of it. They are tied: one
// decision is made for all.

// noteReaders notes the QMoE nodes that read a weight, by name of their output.
func (a *analyzer) noteReaders(at int, w *rewrite.Weight) {
	if w.Choice.Style != spec.NBits || !w.Choice.NBits.Experts {
		return
	}
	for _, l := range w.Reach.Leaves {
		name := graph.FirstOutput(l.Node)
		if !slices.Contains(a.read[name], at) {
			a.read[name] = append(a.read[name], at)
		}
	}
}

// tie gives each weight its unit: the first of the weights that it is tied to, or itself. Tied weights keep the
// choices that all of them have.
func (a *analyzer) tie() {
	a.unit = make([]int, len(a.Weights))
	for i := range a.unit {
		a.unit[i] = i
	}
	for again := true; again; { // a weight may be in several nodes
		again = false
		for _, group := range a.read {
			first := a.unit[group[0]]
			for _, i := range group {
				first = min(first, a.unit[i])
			}
			for _, i := range group {
				again = again || a.unit[i] != first
				a.unit[i] = first
			}
		}
	}
	for i, unit := range a.unit {
		if unit != i {
			keepCommon(&a.Weights[i], &a.Weights[unit])
		}
	}
	for i, unit := range a.unit {
		if unit != i {
			keepCommon(&a.Weights[i], &a.Weights[unit]) // which lost some to the others
		}
	}
}

// keepCommon removes the choices that only one of two weights has.
func keepCommon(v, w *Weight) {
	only := func(of, other *Weight) []Choice {
		return slices.DeleteFunc(slices.Clone(of.Choices), func(c Choice) bool { _, ok := other.ChoiceOf(c.Candidate); return !ok })
	}
	v.Choices, w.Choices = only(v, w), only(w, v)
}

// merged adds up the classes of tied weights. of is the position in merged of each weight's class.
func (a *analyzer) merged(classes [][]knapsack.Choice) (merged [][]knapsack.Choice, of []int) {
	at := map[int]int{} // by unit
	for i, class := range classes {
		unit := a.unit[i]
		if k, ok := at[unit]; ok {
			for j := range class {
				merged[k][j].Cost += class[j].Cost
				merged[k][j].Weight += class[j].Weight
			}
			of = append(of, k)
			continue
		}
		at[unit] = len(merged)
		of = append(of, len(merged))
		merged = append(merged, slices.Clone(class))
	}
	return merged, of
}

// solve is knapsack.Solve for classes of weights, some of which may be tied.
func (a *analyzer) solve(classes [][]knapsack.Choice, capacity float64) (knapsack.Solution, bool) {
	merged, of := a.merged(classes)
	s, ok := knapsack.Solve(merged, capacity)
	if ok {
		s.Pick = spread(s.Pick, of)
	}
	return s, ok
}

// spread returns the pick for each weight.
func spread(pick, of []int) []int {
	all := make([]int, len(of))
	for i, k := range of {
		all[i] = pick[k]
	}
	return all
}
