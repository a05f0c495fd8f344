package summary

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Plan prints a table of the tensors, and a summary with more facts.
func Plan(w io.Writer, p *onnxq.Plan, more []cli.Fact) {
	rows := [][]string{tensorHeading}
	for _, t := range p.Tensors {
		rows = append(rows, tensorRow(t))
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
	cli.PrintFacts(w, slices.Concat(planFacts(p), more, Cost(p.CalibrationCost)))
}

// Tensors prints a table of the tensors, with the errors of the quantized ones.
func Tensors(w io.Writer, r *onnxq.Report) {
	reports := map[string]onnxq.TensorReport{}
	for _, t := range r.Tensors {
		reports[t.Name] = t
	}
	rows := [][]string{slices.Concat(tensorHeading, []string{"SQNR", "LARGEST ERROR"})}
	for _, t := range r.Plan.Tensors {
		row := tensorRow(t)
		if e, ok := reports[t.Name]; ok && t.Decision == onnxq.Quantize {
			row = append(row, cli.Decibels(e.SQNR), fmt.Sprintf("%.3g", e.MaxError))
		}
		rows = append(rows, row)
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
}

// Conversion prints the summary of a conversion.
func Conversion(w io.Writer, r *onnxq.Report, elapsed time.Duration, speed string, hints []string) {
	var measured []cli.Fact
	if speed != "" {
		measured = []cli.Fact{{Label: "a run", Text: "takes " + speed}}
	}
	cli.PrintSummaryFacts(w, slices.Concat(Verdict(r.Calibration), planFacts(r.Plan), calibrationFacts(r.Calibration), worstFacts(r), measured, []cli.Fact{
		timeFact(elapsed, r.Plan.InBytes),
		Written(r.Output, r.Data, r.MoreData, r.Verified, r.Replaced),
	}, cli.Labelled("hint", hints)))
}

// worstFacts lists the weights with the lowest SQNR.
func worstFacts(r *onnxq.Report) []cli.Fact {
	const most = 3 // --verbose lists all
	sorted := slices.SortedStableFunc(slices.Values(r.Tensors), func(a, b onnxq.TensorReport) int { return cmp.Compare(a.SQNR, b.SQNR) })
	var texts []string
	for _, t := range sorted[:min(most, len(sorted))] {
		texts = append(texts, ErrorText(t.Name, t.Node, t.SQNR, t.MaxError))
	}
	if c := r.Calibration; c != nil && c.Layers > c.Lost && !c.Refused {
		texts = append(texts, "codes by data have larger errors in the weights, and smaller ones in the outputs")
	}
	return cli.Labelled("worst", texts)
}

func timeFact(elapsed time.Duration, bytes int64) cli.Fact {
	rate := float64(bytes) / max(elapsed.Seconds(), 1e-3)
	return cli.Fact{Label: "time", Text: fmt.Sprintf("%.2f s, %s/s", elapsed.Seconds(), humanize.IBytes(uint64(rate)))}
}

// Written names the output files; data is "" without external data. replaced: there was one of this name.
func Written(output, data string, more []string, verified, replaced bool) cli.Fact {
	text := cli.Printable(output)
	if data != "" {
		text += " and " + cli.Printable(data)
	}
	if len(more) > 0 {
		text += " … " + cli.Printable(filepath.Base(more[len(more)-1]))
	}
	if replaced {
		text += ", in place of an older file"
	}
	if verified {
		return cli.Fact{Label: "written", Text: text + ", read back and checked"}
	}
	return cli.Fact{Label: "written", Text: text + ", not checked"}
}

// ErrorText has the whole name, for a precision_info.
func ErrorText(tensor, node string, sqnr, maxError float64) string {
	name := cli.Clip(cli.Printable(tensor), cli.MaxText)
	if node != "" {
		name += " (" + cli.Clip(cli.Printable(node), cli.MaxText) + ")"
	}
	return fmt.Sprintf("%s: SQNR %s, error up to %.3g", name, cli.Decibels(sqnr), maxError)
}

// planFacts counts the quantized tensors by format, and the rest by reason.
func planFacts(p *onnxq.Plan) []cli.Fact {
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
		text += ": " + strings.Join(cli.Counts(formats), ", ")
	}
	var kept []string
	for _, reason := range cli.Counts(reasons) {
		kept = append(kept, cli.Sentence(reason))
	}
	var missed []string
	for _, f := range p.Fallbacks {
		missed = append(missed, cli.Sentence(f.String()))
	}
	facts := slices.Concat(cli.Labelled("not applied", missed), []cli.Fact{{Label: "quantized", Text: text}}, cli.Labelled("fallback", cli.Counts(fallbacks)), cli.Labelled("kept", kept))
	if quantized == 0 && p.HalfPrecision != nil {
		facts = nil
	}
	if quantized > 0 {
		facts = append(facts, cli.Fact{Label: "weights", Text: fmt.Sprintf("%.3f bits each, scales included", p.BitsPerWeight)})
	}
	facts = append(facts, decodedFacts(p.Decoded)...)
	facts = append(facts, cli.Labelled("folded", p.Folded.Facts())...)
	facts = append(facts, halfFacts(p.HalfPrecision)...)
	if p.Caches > 0 {
		facts = append(facts, cli.Fact{Label: "caches", Text: fmt.Sprintf("%s of keys or values: int8", english.Plural(p.Caches, "cache", ""))})
	}
	facts = append(facts, cli.Fact{Label: "size", Text: cli.Sizes(p.InBytes, p.OutBytes)})
	facts = append(facts, opsetFacts(p.OpsetBefore, p.OpsetAfter, p.OpsetFor)...)
	if p.IRAfter != p.IRBefore {
		facts = append(facts, cli.Fact{Label: "IR", Text: fmt.Sprintf("%d -> %d", p.IRBefore, p.IRAfter)})
	}
	return facts
}

// decodedFacts say which weights ONNX Runtime decodes at every run, and what that costs.
func decodedFacts(list []onnxq.Decoded) []cli.Fact {
	if len(list) == 0 {
		return nil
	}
	texts := []string{"at every run in ONNX Runtime, which can take 10 times as long as floats where runs have few rows (onnxquant bench measures it); --target ort without --smallest has integers decoded once:"}
	for _, d := range list {
		texts = append(texts, fmt.Sprintf("%s of %s, such as %s: %s", english.Plural(len(d.Weights), "weight", ""), d.Operator, cli.Printable(d.Weights[0]), humanize.IBytes(uint64(d.Bytes))))
	}
	return cli.Labelled("decoded", texts)
}

// opsetFacts say that the opset is raised, and which formats need it.
func opsetFacts(before, after int64, formats []string) []cli.Fact {
	if before == after {
		return nil
	}
	text := fmt.Sprintf("%d -> %d", before, after)
	if len(formats) > 0 {
		text += ", for " + strings.Join(formats, ", ")
	}
	return []cli.Fact{{Label: "opset", Text: text}}
}

// groupedReason is a reason without the names of values, which differ for each bias.
func groupedReason(reason string) string {
	if codes, _, ok := strings.Cut(reason, " at the scale of "); ok {
		return "biases: " + codes
	}
	return reason
}

var tensorHeading = []string{"NAME", "SHAPE", "DTYPE", "DECISION", "FORMAT", "AXIS", "BLOCK", "BYTES", "REASON"}

func tensorRow(t onnxq.TensorPlan) []string {
	row := []string{cli.Named(t.Name, t.Node), cli.Shape(t.Shape), t.DType, string(t.Decision)}
	if t.Decision != onnxq.Quantize {
		return append(row, "-", "-", "-", cli.ByteSize(t.Bytes), cli.Sentence(t.Reason))
	}
	axis, block := strconv.Itoa(t.Axis), strconv.Itoa(t.Block)
	switch t.Block {
	case spec.PerChannel:
		block = "channel"
	case spec.PerTensor:
		axis, block = "-", "tensor"
	}
	return append(row, string(t.Format), axis, block, cli.ByteSize(t.Bytes)+" -> "+cli.ByteSize(t.OutBytes), cli.Sentence(cmp.Or(t.Note, "-")))
}

// halfFacts lists what became of float32 tensors and nodes, with the reasons of those that stay.
func halfFacts(h *onnxq.HalfPrecision) []cli.Fact {
	if h == nil {
		return nil
	}
	facts := []cli.Fact{{Label: string(h.Type), Text: english.Plural(h.Tensors, "tensor", "") + ", " + english.Plural(h.Casts, "new Cast", "")}}
	var texts []string
	for _, reason := range cli.Counts(h.Reasons()) {
		texts = append(texts, cli.Sentence(reason))
	}
	return append(facts, cli.Labelled("float32", texts)...)
}

// Cost says what calibration will take.
func Cost(c *onnxq.CalibrationCost) []cli.Fact {
	if c == nil {
		return nil
	}
	what := fmt.Sprintf("codes of %s of layers, by %s of the model over the samples, in parts", english.Plural(c.Groups, "group", ""), english.Plural(c.Runs, "run", ""))
	text := fmt.Sprintf("about %s, %s of memory and %s of disk: %s", aboutTime(c.Seconds), cli.ByteSize(c.Memory), cli.ByteSize(c.Disk), what)
	if !c.Measured {
		text = fmt.Sprintf("%s; about %s, %s of memory and %s of disk, without those of the runs", what, aboutTime(c.Seconds), cli.ByteSize(c.Memory), cli.ByteSize(c.Disk))
	}
	text += fmt.Sprintf("; %s of processor time", aboutTime(c.CPU))
	if c.Free > 0 && c.Free < fewFree {
		text += fmt.Sprintf("; others use the processors, of which %.0f %% are free now: about %s", 100*c.Free, aboutTime(c.Seconds/c.Free))
	}
	return []cli.Fact{{Label: "calibration", Text: text}}
}

// fewFree is the share of free processors below which an estimate says how long it takes beside others.
const fewFree = 0.8

// aboutTime is an estimate in seconds, minutes or hours.
func aboutTime(seconds float64) string {
	switch minutes := seconds / 60; {
	case minutes < 2:
		return fmt.Sprintf("%.0f s", math.Ceil(seconds))
	case minutes < 120:
		return fmt.Sprintf("%.0f minutes", math.Ceil(minutes))
	}
	return fmt.Sprintf("%.0f hours", math.Ceil(seconds/3600))
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

// Verdict says in the first line if calibration found that the model is of little use.
func Verdict(c *onnxq.Calibrated) []cli.Fact {
	if c == nil || !c.Poor {
		return nil
	}
	return cli.Labelled("verdict", []string{fmt.Sprintf("poor: SQNR %.1f dB of the model's outputs on %s is below %g dB; take more bits, smaller blocks, or --exclude",
		c.SQNR(), comparedOn(c), onnxq.PoorOutputs)})
}

// calibrationFacts say what calibration has gained.
func calibrationFacts(c *onnxq.Calibrated) []cli.Fact {
	if c == nil {
		return nil
	}
	if c.Layers == 0 {
		lines := []string{"nothing was compared with mse: no layer is calibrated that has ten rows in the samples"}
		return cli.Labelled("calibrated", append(lines, expertLines(c.Experts)...))
	}
	percent := func(e float64) string { return fmt.Sprintf("%.2g %%", 100*math.Sqrt(e)) }
	lines := []string{
		fmt.Sprintf("%s, error of their outputs on %s %s, with mse %s", english.Plural(c.Layers, "layer", ""), heldOut(c), percent(c.Error), percent(c.MSE)),
	}
	if c.Samples > 0 {
		lines = append(lines, fmt.Sprintf("error of the model's outputs on %s %s, with mse %s", comparedOn(c), percent(c.Output), percent(c.OutputMSE)))
	}
	if c.GPTQ > 0 && !c.Refused {
		lines = append(lines, fmt.Sprintf("%s of %s columns of weights got gptq, which is better on held-out rows", humanize.Comma(c.GPTQ), humanize.Comma(c.Columns)))
	}
	if c.Balanced > 0 {
		lines = append(lines, english.Plural(c.Balanced, "layer reads", "layers read")+" channels with factors")
	}
	if c.Refused {
		lines = append(lines, "all layers got mse, which is better")
	} else if c.Lost > 0 {
		lines = append(lines, english.Plural(c.Lost, "layer", "")+" got mse, which is better")
	}
	lines = append(lines, expertLines(c.Experts)...)
	if t := c.Tuned; t != nil && t.Why == "" {
		lines = append(lines, tunedLine(t))
	}
	return cli.Labelled("calibrated", lines)
}

// expertLines name the experts without codes by data.
func expertLines(all []onnxq.FallbackExperts) (lines []string) {
	name := func(e onnxq.FallbackExperts, numbers []int, why string) {
		if len(numbers) == 0 {
			return
		}
		var list []string
		for _, n := range numbers {
			list = append(list, strconv.Itoa(n))
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s got mse, %s", e.Weight, english.PluralWord(len(list), e.Part, ""), english.WordSeries(list, "and"), why))
	}
	for _, e := range all {
		name(e, e.Few, "which too few rows reach")
		name(e, e.NotHeldOut, "of which no row is held out")
		name(e, e.Worse, "which is better")
		name(e, e.Unsolved, "because "+e.UnsolvedWhy)
	}
	return lines
}

// tunedLine says what tuning scales gained.
func tunedLine(t *onnxq.Tuned) string {
	if t.Steps == 0 {
		return fmt.Sprintf("scales as they were: tuning does not lower the %s of the outputs on held-out samples, %.3g", t.Loss, t.Before)
	}
	return fmt.Sprintf("scales tuned in %s: %s of the outputs on held-out samples %.3g, without %.3g", english.Plural(t.Steps, "step", ""), t.Loss, t.After, t.Before)
}
