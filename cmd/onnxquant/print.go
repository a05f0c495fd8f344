package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// Tables show at most so many characters of a cell; JSON has all of them.
const (
	maxName   = 64
	maxReason = 80
)

// printPlan prints a plan: a table of its tensors, and what they come to.
func printPlan(w io.Writer, p *onnxq.Plan) {
	rows := [][]string{tensorHeading}
	for _, t := range p.Tensors {
		rows = append(rows, tensorRow(t))
	}
	printTable(w, rows)
	fmt.Fprintln(w)
	printFacts(w, planFacts(p))
}

// printTensors prints what became of each tensor, the quantized ones with how
// far their codes are from the float values.
func printTensors(w io.Writer, r *onnxq.Report) {
	errors := map[string]onnxq.TensorReport{}
	for _, t := range r.Tensors {
		errors[t.Name] = t
	}
	rows := [][]string{slices.Concat(tensorHeading, []string{"SQNR", "LARGEST ERROR"})}
	for _, t := range r.Plan.Tensors {
		row := tensorRow(t)
		if e, ok := errors[t.Name]; ok && t.Decision == onnxq.Quantize {
			row = append(row, decibels(e.SQNR), fmt.Sprintf("%.3g", e.MaxError))
		}
		rows = append(rows, row)
	}
	printTable(w, rows)
	fmt.Fprintln(w)
}

// printSummary prints what a conversion came to.
func printSummary(w io.Writer, r *onnxq.Report, elapsed time.Duration) {
	facts := planFacts(r.Plan)
	if len(r.Tensors) > 0 {
		facts = append(facts, worstFacts(r.Tensors)...)
	}
	rate := float64(r.Plan.InBytes) / max(elapsed.Seconds(), 1e-3)
	facts = append(facts, fact{"time", fmt.Sprintf("%.2f s, %s/s", elapsed.Seconds(), humanize.IBytes(uint64(rate)))})
	written := printable(r.Output)
	if r.Data != "" {
		written += " and " + printable(r.Data)
	}
	if r.Verified {
		written += ", read back and checked"
	} else {
		written += ", not checked"
	}
	printFacts(w, append(facts, fact{"written", written}))
}

// worstFacts names the weights that suffered most.
func worstFacts(tensors []onnxq.TensorReport) []fact {
	const most = 10
	sorted := slices.SortedStableFunc(slices.Values(tensors), func(a, b onnxq.TensorReport) int { return cmp.Compare(a.SQNR, b.SQNR) })
	var facts []fact
	for i, t := range sorted[:min(most, len(sorted))] {
		about := "worst"
		if i > 0 {
			about = ""
		}
		facts = append(facts, fact{about, fmt.Sprintf("%s: SQNR %s, largest error %.3g", name(t.Name), decibels(t.SQNR), t.MaxError)})
	}
	return facts
}

// A fact is a line of a summary.
type fact struct{ about, text string }

func printFacts(w io.Writer, facts []fact) {
	for _, f := range facts {
		fmt.Fprintf(w, "%-9s  %s\n", f.about, f.text)
	}
}

// planFacts counts what is quantized and what is left, and why.
func planFacts(p *onnxq.Plan) []fact {
	formats, reasons := map[string]int{}, map[string]int{}
	quantized := 0
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			formats[string(t.Format)]++
			quantized++
		} else {
			reasons[t.Reason]++
		}
	}
	text := fmt.Sprintf("%d of %d float tensors, %.1f %% of their bytes", quantized, len(p.Tensors), 100*p.Coverage)
	if quantized > 0 {
		text += ": " + strings.Join(counts(formats), ", ")
	}
	facts := []fact{{"quantized", text}}
	for i, reason := range counts(reasons) {
		about := "left"
		if i > 0 {
			about = ""
		}
		facts = append(facts, fact{about, clip(printable(reason), maxReason)})
	}
	if quantized > 0 {
		facts = append(facts, fact{"weights", fmt.Sprintf("%.3f bits each, scales and all", p.BitsPerWeight)})
	}
	facts = append(facts, fact{"size", sizes(p.InBytes, p.OutBytes)})
	if p.OpsetAfter != p.OpsetBefore {
		facts = append(facts, fact{"opset", fmt.Sprintf("%d -> %d", p.OpsetBefore, p.OpsetAfter)})
	}
	if p.IRAfter != p.IRBefore {
		facts = append(facts, fact{"IR", fmt.Sprintf("%d -> %d", p.IRBefore, p.IRAfter)})
	}
	return facts
}

// counts lists numbers with what they count, the largest first. After a few it
// adds up the others.
func counts(of map[string]int) []string {
	const most = 8
	keys := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	var list []string
	rest := 0
	for i, key := range keys {
		if i < most {
			list = append(list, fmt.Sprintf("%d %s", of[key], key))
		} else {
			rest += of[key]
		}
	}
	if rest > 0 {
		list = append(list, others(rest))
	}
	return list
}

// listed joins what a model names, the first few.
func listed(items []string) string {
	const most = 9 // as many as counts makes
	var list []string
	for i, item := range items {
		if i == most {
			list = append(list, others(len(items)-i))
			break
		}
		list = append(list, clip(printable(item), maxName))
	}
	return strings.Join(list, ", ")
}

func others(n int) string {
	if n == 1 {
		return "1 other"
	}
	return fmt.Sprintf("%d others", n)
}

var tensorHeading = []string{"NAME", "SHAPE", "DTYPE", "DECISION", "FORMAT", "AXIS", "BLOCK", "BYTES", "REASON"}

func tensorRow(t onnxq.TensorPlan) []string {
	row := []string{name(t.Name), shape(t.Shape), t.DType, string(t.Decision)}
	if t.Decision != onnxq.Quantize {
		return append(row, "-", "-", "-", byteSize(t.Bytes), clip(printable(t.Reason), maxReason))
	}
	block := strconv.Itoa(t.Block)
	if t.Block == spec.PerChannel {
		block = "channel"
	}
	return append(row, string(t.Format), strconv.Itoa(t.Axis), block, byteSize(t.Bytes)+" -> "+byteSize(t.OutBytes), clip(cmp.Or(printable(t.Note), "-"), maxReason))
}

func printTable(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

func name(s string) string { return clip(printable(s), maxName) }

func shape(dims []int64) string {
	if len(dims) == 0 {
		return "scalar"
	}
	var text []string
	for _, d := range dims {
		text = append(text, strconv.FormatInt(d, 10))
	}
	return clip(strings.Join(text, "x"), maxName)
}

func byteSize(n int64) string { return humanize.IBytes(uint64(n)) }

func sizes(before, after int64) string {
	text := byteSize(before) + " -> " + byteSize(after)
	switch {
	case after <= 0 || before == after:
	case after < before:
		text += fmt.Sprintf(", %.1f times smaller", float64(before)/float64(after))
	default:
		text += fmt.Sprintf(", %.1f times larger", float64(after)/float64(before))
	}
	return text
}

// decibels writes an SQNR. The report says 999 for codes without any error.
func decibels(sqnr float64) string {
	if sqnr >= 999 {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", sqnr)
}
