package summary

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/verify"
)

// Verification prints what a comparison found; verbose: each weight, and all notes.
func Verification(w io.Writer, r *verify.Report, verbose bool) {
	const maxLines = 8
	notes, verdicts := printables(r.Structure.Notes), verdictTexts(r)
	if verbose && len(r.Weights) > 0 {
		cli.PrintTable(w, matchRows(r.Weights))
		fmt.Fprintln(w)
	}
	if !verbose {
		notes, verdicts = cli.First(maxLines, notes), cli.First(maxLines, verdicts)
	}
	facts := append(cli.Labelled("verdict", verdicts), cli.Fact{Label: "written", Text: r.Written.String()}, cli.Fact{Label: "structure", Text: structureText(r.Structure)})
	facts = append(facts, cli.Labelled("", notes)...)
	facts = append(facts, activationFacts(r.Structure.Activations)...)
	facts = append(facts, cacheFacts(r.Structure.Caches)...)
	facts = append(facts, cli.Fact{Label: "weights", Text: weightsText(r)})
	if len(r.Weights) > 0 {
		worst := slices.MinFunc(r.Weights, func(a, b compare.WeightMatch) int { return cmp.Compare(a.SQNR, b.SQNR) })
		facts = append(facts, cli.Fact{Label: "worst", Text: ErrorText(worst.Name, worst.Node, worst.SQNR, worst.MaxError)})
	}
	cli.PrintFacts(w, slices.Concat(facts, executionFacts(r.Execution), cli.Labelled("trace", printables(r.Trace.Lines())), cli.Labelled("warning", printables(r.Warnings)), cli.Labelled("hint", printables(r.Hints))))
}

func matchRows(weights []compare.WeightMatch) [][]string {
	rows := [][]string{{"NAME", "SHAPE", "DTYPE", "CODES", "FORM", "SQNR", "LARGEST ERROR", "MSE", "WORST BLOCK"}}
	for _, m := range weights {
		worst := "-"
		if b := m.Worst; b != nil {
			worst = fmt.Sprintf("%s, %d from %v", cli.Decibels(b.SQNR), b.Length, b.At)
		}
		rows = append(rows, []string{cli.Named(m.Name, m.Node), cli.Shape(m.Shape), m.DType, cmp.Or(m.CodeType, "-"), m.Form, cli.Decibels(m.SQNR),
			fmt.Sprintf("%.3g", m.MaxError), fmt.Sprintf("%.3g", m.MSE), worst})
	}
	return rows
}

// verdictTexts returns the verdict with each of its reasons.
func verdictTexts(r *verify.Report) (texts []string) {
	for _, reason := range r.Reasons() {
		texts = append(texts, string(r.Verdict)+": "+cli.Printable(reason))
	}
	return texts
}

func structureText(s verify.Structure) string {
	nodes := english.Plural(s.Nodes, "node", "")
	if len(s.Problems) > 0 {
		return fmt.Sprintf("%s; differences besides weights: %d", nodes, len(s.Problems))
	}
	changed := []string{"weights"}
	if len(s.Activations) > 0 {
		changed = append(changed, "activations")
	}
	if n := len(s.Caches); n > 0 {
		changed = append(changed, english.Plural(n, "key-value cache", ""))
	}
	return nodes + "; nothing but " + cli.OneAnd(changed) + " changed"
}

// cacheFacts names the caches of int8.
func cacheFacts(inputs []string) []cli.Fact {
	const named = 4
	if len(inputs) == 0 {
		return nil
	}
	text := "int8: " + strings.Join(printables(inputs[:min(len(inputs), named)]), ", ")
	if more := len(inputs) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []cli.Fact{{Label: "caches", Text: text}}
}

// activationFacts tells how many activations are quantized.
func activationFacts(types map[string]int) []cli.Fact {
	if text := activationsText(types); text != "" {
		return []cli.Fact{{Label: "activations", Text: text}}
	}
	return nil
}

func activationsText(types map[string]int) string {
	var texts []string
	for _, codes := range slices.Sorted(maps.Keys(types)) {
		noun := "tensors"
		if types[codes] == 1 {
			noun = "tensor"
		}
		texts = append(texts, fmt.Sprintf("%d %s as %s codes", types[codes], noun, strings.ToLower(codes)))
	}
	return strings.Join(texts, ", ")
}

func weightsText(r *verify.Report) string {
	forms := map[string]int{}
	for _, m := range r.Weights {
		form := m.Form
		if m.CodeType != "" {
			form = m.CodeType + " by " + form
		}
		forms[form]++
	}
	text, kinds := fmt.Sprintf("%d compared", len(r.Weights)+r.Rounded), cli.Counts(forms)
	if r.Rounded > 0 {
		kinds = append(kinds, fmt.Sprintf("%d equal to IN's rounded to %s", r.Rounded, r.Structure.FloatType))
	}
	if len(kinds) > 0 {
		text += ": " + strings.Join(kinds, ", ")
	}
	return text + fmt.Sprintf("; %d other constants equal", r.Same-r.Rounded)
}

func executionFacts(x verify.Execution) []cli.Fact {
	if !x.Compared {
		return append([]cli.Fact{{Label: "execution", Text: "the outputs were not compared"}}, cli.Labelled("", printables(x.Reasons))...)
	}
	facts := []cli.Fact{{Label: "execution", Text: x.Engine}, {Label: "", Text: "OUT as it is"}}
	if x.Decoded {
		facts[1].Text = "with the weights of OUT as floats"
	}
	if x.Library != "" {
		facts[0].Text += ", " + cli.Printable(x.Library)
	}
	if x.Sizes != "" {
		facts[1].Text += ", on random inputs of " + cli.Printable(x.Sizes)
	}
	if x.Samples > 1 {
		facts[1].Text += fmt.Sprintf(", %d samples", x.Samples)
	}
	facts = slices.Concat(facts, cli.Labelled("", printables(x.MadeUp())), outputFacts(x.Outputs))
	if x.QuantizedRun != nil && x.QuantizedRun.Reason == "" {
		facts = append(append(facts, cli.Fact{Label: "", Text: "OUT itself, as users run it in " + x.QuantizedRun.Engine + ", " + cli.Printable(x.QuantizedRun.Library) + generated(x.QuantizedRun)}), outputFacts(x.QuantizedRun.Outputs)...)
		if x.QuantizedRun.Exact != nil {
			facts = append(append(facts, cli.Fact{Label: "", Text: "with the session's qdq_matmulnbits_accuracy_level at 1"}), outputFacts(x.QuantizedRun.Exact)...)
		}
	}
	return facts
}

// generated says that models also generated text.
func generated(r *verify.QuantizedRun) string {
	if r.Generated == 0 {
		return ""
	}
	return fmt.Sprintf(", and with its own int8 cache for %s after a prompt", english.Plural(r.Generated, "token", ""))
}

func outputFacts(outputs []verify.Output) (facts []cli.Fact) {
	for _, o := range outputs {
		if o.Elements == 0 && o.Broken == 0 {
			facts = append(facts, cli.Fact{Label: "", Text: fmt.Sprintf("%s %s: no finite elements to compare", cli.Name(o.Name), cli.Shape(o.Dims))})
			continue
		}
		text := fmt.Sprintf("%s %s: ", cli.Name(o.Name), cli.Shape(o.Dims))
		if o.Elements > 0 {
			text += fmt.Sprintf("SQNR %s, largest error %.3g (%.2g of the largest value), cosine %.6f",
				cli.Decibels(o.SQNR), o.MaxError, o.Relative, o.Cosine)
		}
		if o.Elements > 0 && o.Broken > 0 {
			text += "; "
		}
		if o.Broken > 0 {
			text += fmt.Sprintf("%d %s NaN or infinite in one model only", o.Broken, english.PluralWord(o.Broken, "element is", "elements are"))
		}
		facts = append(facts, cli.Fact{Label: "", Text: text})
		if d := o.Distribution; d != nil {
			facts = append(facts, cli.Fact{Label: "", Text: fmt.Sprintf("as %s: the same class in %.4g %% of %d rows, KL divergence %.3g on average, %.3g at most",
				d.Kind, 100*d.Top1, d.Rows, d.KLDivergence.Mean, d.KLDivergence.Max)})
		}
	}
	return facts
}

func printables(texts []string) []string {
	var list []string
	for _, text := range texts {
		list = append(list, cli.Printable(text))
	}
	return list
}
