package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/spec"
)

// mostColumns is the number of candidates that fit beside each other on a screen.
const mostColumns = 4

// printAnalysis prints the weights with all formats, or if these are too many with the recommended one, and what
// each format makes of the model.
func printAnalysis(w io.Writer, a *analyze.Analysis, all bool) {
	if all || len(a.Candidates)-1 <= mostColumns {
		printTable(w, choiceRows(a))
	} else {
		if a.Precision != nil {
			printTable(w, recommendedRows(a))
			fmt.Fprintln(w)
		}
		printTable(w, totalRows(a))
	}
	fmt.Fprintln(w)
	if a.Precision != nil {
		printRecommended(w, a)
	} else {
		printFrontier(w, a)
	}
}

// measured is the damage to the outputs if it was measured, else the error of weights.
func measured(e float64, damage *float64) string {
	if damage != nil {
		return fmt.Sprintf("%.2g", *damage)
	}
	return fmt.Sprintf("%.4f", e)
}

// choiceRows are the weights with the error and the size in each format.
func choiceRows(a *analyze.Analysis) [][]string {
	heading := []string{"NAME", "SHAPE"}
	for _, c := range a.Candidates[1:] {
		heading = append(heading, strings.ToUpper(c.String()))
	}
	if a.Precision != nil {
		heading = append(heading, "RECOMMENDED")
	}
	rows := [][]string{heading}
	for _, t := range a.Weights {
		row := []string{name(t.Name), shape(t.Shape)}
		for _, c := range a.Candidates[1:] {
			text := "-"
			if choice, ok := chosen(t, c); ok {
				text = measured(choice.Error, choice.Damage) + " " + byteSize(choice.Bytes)
			}
			row = append(row, text)
		}
		if a.Precision != nil {
			row = append(row, t.Recommended.String())
		}
		rows = append(rows, row)
	}
	total := []string{"(model)", "-"}
	for _, t := range a.Totals[1:] {
		total = append(total, measured(t.Error, t.Damage)+" "+byteSize(t.OutBytes))
	}
	if a.Precision != nil {
		total = append(total, measured(a.Error, a.Damage)+" "+byteSize(a.OutBytes))
	}
	return append(rows, total)
}

func chosen(t analyze.Weight, c spec.Candidate) (analyze.Choice, bool) {
	i := slices.IndexFunc(t.Choices, func(choice analyze.Choice) bool { return choice.Candidate == c })
	if i < 0 {
		return analyze.Choice{}, false
	}
	return t.Choices[i], true
}

// recommendedRows are the weights with what is recommended for each.
func recommendedRows(a *analyze.Analysis) [][]string {
	rows := [][]string{{"NAME", "SHAPE", "RECOMMENDED", measuredName(a), "SIZE"}}
	for _, t := range a.Weights {
		row := []string{name(t.Name), shape(t.Shape), t.Recommended.String(), "-", byteSize(t.Bytes)}
		if choice, ok := chosen(t, t.Recommended); ok {
			row[3], row[4] = measured(choice.Error, choice.Damage), byteSize(choice.Bytes)
		}
		rows = append(rows, row)
	}
	return rows
}

// totalRows are the formats with what each makes of the model.
func totalRows(a *analyze.Analysis) [][]string {
	rows := [][]string{{"ALL WEIGHTS IN", measuredName(a), "SIZE"}}
	for _, t := range a.Totals[1:] {
		rows = append(rows, []string{t.Candidate.String(), measured(t.Error, t.Damage), byteSize(t.OutBytes)})
	}
	return rows
}

func measuredName(a *analyze.Analysis) string {
	if a.Damage != nil || slices.ContainsFunc(a.Totals, func(t analyze.Total) bool { return t.Damage != nil }) {
		return "OUTPUTS"
	}
	return "ERROR"
}

// printRecommended prints facts about the recommendation.
func printRecommended(w io.Writer, a *analyze.Analysis) {
	counted := map[string]int{}
	for _, t := range a.Weights {
		counted[t.Recommended.String()]++
	}
	facts := []fact{{"mix", strings.Join(counts(counted), ", ")}, {"size", sizes(a.FloatBytes, a.OutBytes)}}
	facts = append(facts, opsetFacts(a.OpsetBefore, a.OpsetAfter, a.OpsetFor)...)
	if a.MaxSize >= a.FloatBytes && a.MaxError == 0 {
		facts = append(facts, fact{"bound", fmt.Sprintf("the float model, %s, already fits in %s", byteSize(a.FloatBytes), byteSize(a.MaxSize))})
	}
	if a.Damage != nil {
		facts = append(facts, fact{"outputs", fmt.Sprintf("%.3g in sum, on the data", *a.Damage)})
	}
	printFacts(w, append(facts, []fact{
		{"error", fmt.Sprintf("%.4f, SQNR %s", a.Error, decibels(-20*math.Log10(a.Error)))},
		{"optimum", optimumText(a.Gap)},
	}...))
}

// printFrontier prints the best mixes of some sizes.
func printFrontier(w io.Writer, a *analyze.Analysis) {
	const most = 16
	rows := [][]string{{"BEST MIX OF", "OUTPUTS"}}
	steps := len(a.DamageFrontier) - 1
	n := min(steps, most)
	for i := range n + 1 {
		p := a.DamageFrontier[i*steps/max(n, 1)]
		rows = append(rows, []string{fmt.Sprintf("%d bytes", p.OutBytes), fmt.Sprintf("%.3g", p.Damage)})
	}
	printTable(w, rows)
}

// optimumText says how much better another mix may be: by at most this share.
func optimumText(gap float64) string {
	if gap == 0 {
		return "no mix of these candidates is better"
	}
	return fmt.Sprintf("no mix of these candidates is more than %.3g %% better", math.Ceil(1000*gap)/10)
}
