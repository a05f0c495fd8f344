package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// printPlan prints a table of the tensors, and a summary with more facts.
func printPlan(w io.Writer, p *onnxq.Plan, more []fact) {
	rows := [][]string{tensorHeading}
	for _, t := range p.Tensors {
		rows = append(rows, tensorRow(t))
	}
	printTable(w, rows)
	fmt.Fprintln(w)
	printFacts(w, slices.Concat(planFacts(p), more, costFacts(p.CalibrationCost, "")))
}

// printTensors prints a table of the tensors, with the errors of the quantized ones.
func printTensors(w io.Writer, r *onnxq.Report) {
	reports := map[string]onnxq.TensorReport{}
	for _, t := range r.Tensors {
		reports[t.Name] = t
	}
	rows := [][]string{slices.Concat(tensorHeading, []string{"SQNR", "LARGEST ERROR"})}
	for _, t := range r.Plan.Tensors {
		row := tensorRow(t)
		if e, ok := reports[t.Name]; ok && t.Decision == onnxq.Quantize {
			row = append(row, decibels(e.SQNR), fmt.Sprintf("%.3g", e.MaxError))
		}
		rows = append(rows, row)
	}
	printTable(w, rows)
	fmt.Fprintln(w)
}

// printSummary prints the summary of a conversion.
func printSummary(w io.Writer, r *onnxq.Report, elapsed time.Duration, hints []string) {
	printSummaryFacts(w, slices.Concat(planFacts(r.Plan), calibrationFacts(r.Calibration), worstFacts(r), []fact{
		timeFact(elapsed, r.Plan.InBytes),
		writtenFact(r.Output, r.Data, r.MoreData, r.Verified, r.Replaced),
	}, labelled("hint", hints)))
}

// worstFacts lists the weights with the lowest SQNR.
func worstFacts(r *onnxq.Report) []fact {
	const most = 3 // --verbose lists all
	sorted := slices.SortedStableFunc(slices.Values(r.Tensors), func(a, b onnxq.TensorReport) int { return cmp.Compare(a.SQNR, b.SQNR) })
	var texts []string
	for _, t := range sorted[:min(most, len(sorted))] {
		texts = append(texts, errorText(t.Name, t.SQNR, t.MaxError))
	}
	if c := r.Calibration; c != nil && c.Layers > c.Lost && !c.Refused {
		texts = append(texts, "codes by data have larger errors in the weights, and smaller ones in the outputs")
	}
	return labelled("worst", texts)
}

func timeFact(elapsed time.Duration, bytes int64) fact {
	rate := float64(bytes) / max(elapsed.Seconds(), 1e-3)
	return fact{"time", fmt.Sprintf("%.2f s, %s/s", elapsed.Seconds(), humanize.IBytes(uint64(rate)))}
}

// writtenFact names the output files; data is "" without external data. replaced: there was one of this name.
func writtenFact(output, data string, more []string, verified, replaced bool) fact {
	text := printable(output)
	if data != "" {
		text += " and " + printable(data)
	}
	if len(more) > 0 {
		text += " … " + printable(filepath.Base(more[len(more)-1]))
	}
	if replaced {
		text += ", in place of an older file"
	}
	if verified {
		return fact{"written", text + ", read back and checked"}
	}
	return fact{"written", text + ", not checked"}
}

// errorText fits on a line of a summary.
func errorText(tensor string, sqnr, maxError float64) string {
	const width = helpWidth - 11
	text := fmt.Sprintf(": SQNR %s, error up to %.3g", decibels(sqnr), maxError)
	return clip(printable(tensor), width-utf8.RuneCountInString(text)) + text
}

// planFacts counts the quantized tensors by format, and the others by reason.
func planFacts(p *onnxq.Plan) []fact {
	formats, fallbacks, reasons := map[string]int{}, map[string]int{}, map[string]int{}
	quantized := 0
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			formats[string(t.Format)]++
			quantized++
			if t.Fallback != "" {
				fallbacks[t.Fallback]++
			}
		} else {
			reasons[groupedReason(t.Reason)]++
		}
	}
	text := fmt.Sprintf("%d of %d float tensors, %.1f %% of their bytes", quantized, len(p.Tensors), 100*p.Coverage)
	if quantized > 0 {
		text += ": " + strings.Join(counts(formats), ", ")
	}
	var kept []string
	for _, reason := range counts(reasons) {
		kept = append(kept, sentence(reason))
	}
	facts := slices.Concat([]fact{{"quantized", text}}, labelled("fallback", counts(fallbacks)), labelled("kept", kept))
	if quantized == 0 && p.Half != nil {
		facts = nil
	}
	if quantized > 0 {
		facts = append(facts, fact{"weights", fmt.Sprintf("%.3f bits each, scales included", p.BitsPerWeight)})
	}
	facts = append(facts, halfFacts(p.Half)...)
	facts = append(facts, fact{"size", sizes(p.InBytes, p.OutBytes)})
	facts = append(facts, opsetFacts(p.OpsetBefore, p.OpsetAfter, p.OpsetFor)...)
	if p.IRAfter != p.IRBefore {
		facts = append(facts, fact{"IR", fmt.Sprintf("%d -> %d", p.IRBefore, p.IRAfter)})
	}
	return facts
}

// opsetFacts say that the opset is raised, and which formats need it.
func opsetFacts(before, after int64, formats []string) []fact {
	if before == after {
		return nil
	}
	text := fmt.Sprintf("%d -> %d", before, after)
	if len(formats) > 0 {
		text += ", for " + strings.Join(formats, ", ")
	}
	return []fact{{"opset", text}}
}

// groupedReason is a reason without what differs for each bias: the values whose scales it has.
func groupedReason(reason string) string {
	if codes, _, ok := strings.Cut(reason, " at the scale of "); ok {
		return "biases: " + codes
	}
	return reason
}

var tensorHeading = []string{"NAME", "SHAPE", "DTYPE", "DECISION", "FORMAT", "AXIS", "BLOCK", "BYTES", "REASON"}

func tensorRow(t onnxq.TensorPlan) []string {
	row := []string{name(t.Name), shape(t.Shape), t.DType, string(t.Decision)}
	if t.Decision != onnxq.Quantize {
		return append(row, "-", "-", "-", byteSize(t.Bytes), sentence(t.Reason))
	}
	axis, block := strconv.Itoa(t.Axis), strconv.Itoa(t.Block)
	switch t.Block {
	case spec.PerChannel:
		block = "channel"
	case spec.PerTensor:
		axis, block = "-", "tensor"
	}
	return append(row, string(t.Format), axis, block, byteSize(t.Bytes)+" -> "+byteSize(t.OutBytes), sentence(cmp.Or(t.Note, "-")))
}

// quoted is the name of a value in a reason.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// halfFacts says what became of float32, and what stays and why.
func halfFacts(h *onnxq.Half) []fact {
	if h == nil {
		return nil
	}
	facts := []fact{{string(h.Type), english.Plural(h.Tensors, "tensor", "") + ", " + english.Plural(h.Casts, "new Cast", "")}}
	type kind struct{ operator, reason string }
	kinds := map[kind]string{} // without the name of the value; with the name, if all have the same
	for _, n := range h.Kept {
		k, reason := kind{n.Operator, quoted.ReplaceAllString(n.Reason, "a value")}, n.Reason
		if before, ok := kinds[k]; ok && before != reason {
			reason = k.reason
		}
		kinds[k] = reason
	}
	reasons := map[string]int{}
	for _, n := range h.Kept {
		reasons[n.Operator+" "+kinds[kind{n.Operator, quoted.ReplaceAllString(n.Reason, "a value")}]]++
	}
	var texts []string
	for _, reason := range counts(reasons) {
		texts = append(texts, sentence(reason))
	}
	return append(facts, labelled("float32", texts)...)
}

// costFacts say what calibration will take. runs is about the runs of the model, "" if their time is not known.
func costFacts(c *onnxq.CalibrationCost, runs string) []fact {
	if c == nil {
		return nil
	}
	if runs == "" {
		runs = fmt.Sprintf("more for %s of the model over the samples", english.Plural(c.Runs, "run", ""))
	}
	return []fact{{"calibration", fmt.Sprintf("about %.0f s to find the codes of %s of layers; %s; up to %s of memory, without that of the runs, and %s of disk",
		math.Ceil(c.Seconds), english.Plural(c.Groups, "group", ""), runs, byteSize(c.Memory), byteSize(c.Disk))}}
}

// comparedOn names the samples by which the model's outputs were compared.
func comparedOn(c *onnxq.Calibrated) string {
	if c.HeldOut {
		return english.Plural(c.Samples, "held-out sample", "")
	}
	return english.Plural(c.Samples, "sample", "") + ", too few to hold whole ones out,"
}

// heldOut names what each layer's outputs were compared on.
func heldOut(c *onnxq.Calibrated) string {
	if c.HeldOut {
		return "held-out samples"
	}
	return "held-out rows of the samples"
}

// calibrationFacts say what calibration has gained.
func calibrationFacts(c *onnxq.Calibrated) []fact {
	if c == nil {
		return nil
	}
	if c.Layers == 0 {
		return labelled("calibrated", []string{"nothing was compared with mse: no layer is calibrated that has ten rows in the samples"})
	}
	percent := func(e float64) string { return fmt.Sprintf("%.2g %%", 100*math.Sqrt(e)) }
	lines := []string{
		fmt.Sprintf("%s, error of their outputs on %s %s, with mse %s", english.Plural(c.Layers, "layer", ""), heldOut(c), percent(c.Error), percent(c.MSE)),
	}
	if c.Samples > 0 {
		lines = append(lines, fmt.Sprintf("error of the model's outputs on %s %s, with mse %s", comparedOn(c), percent(c.Output), percent(c.OutputMSE)))
	}
	if c.Balanced > 0 {
		lines = append(lines, english.Plural(c.Balanced, "layer reads", "layers read")+" channels with factors")
	}
	if c.Refused {
		lines = append(lines, "all layers got mse, which is better")
	} else if c.Lost > 0 {
		lines = append(lines, english.Plural(c.Lost, "layer", "")+" got mse, which is better")
	}
	return labelled("calibrated", lines)
}
