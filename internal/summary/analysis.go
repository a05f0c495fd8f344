package summary

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/analyze"
)

// mostColumns is the number of candidates that fit side by side on a screen.
const mostColumns = 4

// Analysis prints the weights with all formats or, if there are too many, with the recommended
// format. Then it prints the size and error of the model in each format.
func Analysis(w io.Writer, a *analyze.Analysis, all bool) {
	if all || len(a.Candidates)-1 <= mostColumns {
		cli.PrintTable(w, choiceRows(a))
	} else {
		if a.Precision != nil {
			cli.PrintTable(w, recommendedRows(a))
			fmt.Fprintln(w)
		}
		cli.PrintTable(w, totalRows(a))
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
		row := []string{cli.Named(t.Name, t.Node), cli.Shape(t.Shape)}
		for _, c := range a.Candidates[1:] {
			text := "-"
			if choice, ok := t.ChoiceOf(c); ok {
				text = measured(choice.Error, choice.Damage) + " " + cli.ByteSize(choice.Bytes)
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
		total = append(total, measured(t.Error, t.Damage)+" "+cli.ByteSize(t.OutBytes))
	}
	if a.Precision != nil {
		total = append(total, measured(a.Error, a.Damage)+" "+cli.ByteSize(a.OutBytes))
	}
	return append(rows, total)
}

// recommendedRows are the weights with the recommended format of each.
func recommendedRows(a *analyze.Analysis) [][]string {
	rows := [][]string{{"NAME", "SHAPE", "RECOMMENDED", measuredName(a), "SIZE"}}
	for _, t := range a.Weights {
		row := []string{cli.Named(t.Name, t.Node), cli.Shape(t.Shape), t.Recommended.String(), "-", cli.ByteSize(t.Bytes)}
		if choice, ok := t.ChoiceOf(t.Recommended); ok {
			row[3], row[4] = measured(choice.Error, choice.Damage), cli.ByteSize(choice.Bytes)
		}
		rows = append(rows, row)
	}
	return rows
}

// totalRows are the formats with the size and error of the model in each.
func totalRows(a *analyze.Analysis) [][]string {
	rows := [][]string{{"ALL WEIGHTS IN", measuredName(a), "SIZE"}}
	for _, t := range a.Totals[1:] {
		rows = append(rows, []string{t.Candidate.String(), measured(t.Error, t.Damage), cli.ByteSize(t.OutBytes)})
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
	facts := []cli.Fact{{Label: "mix", Text: strings.Join(cli.Counts(counted), ", ")}, {Label: "size", Text: cli.Sizes(a.FloatBytes, a.OutBytes)}}
	facts = append(facts, opsetFacts(a.OpsetBefore, a.OpsetAfter, a.OpsetFor)...)
	if a.MaxSize >= a.FloatBytes && a.MaxError == 0 {
		facts = append(facts, cli.Fact{Label: "bound", Text: fmt.Sprintf("the float model, %s, already fits in %s", cli.ByteSize(a.FloatBytes), cli.ByteSize(a.MaxSize))})
	}
	if a.Damage != nil {
		facts = append(facts, cli.Fact{Label: "outputs", Text: fmt.Sprintf("%.3g in sum, on the data", *a.Damage)})
	}
	cli.PrintFacts(w, append(facts, []cli.Fact{
		{Label: "error", Text: fmt.Sprintf("%.4f, SQNR %s", a.Error, cli.Decibels(-20*math.Log10(a.Error)))},
		{Label: "optimum", Text: optimumText(a.Gap)},
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
	cli.PrintTable(w, rows)
}

// optimumText says how much better another mix may be: by at most this share.
func optimumText(gap float64) string {
	if gap == 0 {
		return "no mix of these candidates is better"
	}
	return fmt.Sprintf("no mix of these candidates is more than %.3g %% better", math.Ceil(1000*gap)/10)
}
