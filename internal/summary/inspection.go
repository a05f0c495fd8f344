package summary

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/internal/recognize"
	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
	"onnxquant/spec"
)

// Inspection prints what a model holds, the plan of its conversion and known problems; all: every weight and place.
func Inspection(w io.Writer, path string, in *inspect.Inspection, all bool) {
	cli.PrintFacts(w, modelFacts(path, in))
	if len(in.Quantized) > 0 {
		fmt.Fprintln(w, "\nQuantized weights:")
		if all {
			cli.PrintTable(w, quantizedRows(in.Quantized))
		} else {
			cli.PrintTable(w, quantizedSums(in.Quantized))
		}
	}
	if in.Plan != nil && len(in.Plan.Tensors) > 0 {
		fmt.Fprintln(w, "\nFloat tensors and their plan:")
		cli.PrintTable(w, ledgerRows(in.Plan.Tensors, all))
		fmt.Fprintln(w)
		cli.PrintFacts(w, planFacts(in.Plan))
		for _, warning := range in.Plan.Warnings {
			cli.PrintFacts(w, []cli.Fact{{Label: "warning", Text: cli.Printable(warning)}})
		}
	} else if in.NoPlan != "" {
		fmt.Fprintln(w)
		cli.PrintFacts(w, []cli.Fact{{Label: "no plan", Text: cli.Printable(in.NoPlan)}})
	}
	if len(in.Hazards) > 0 {
		fmt.Fprintln(w, "\nKnown problems:")
		cli.PrintSummaryFacts(w, hazardFacts(in.Hazards, all))
	}
}

func modelFacts(path string, in *inspect.Inspection) []cli.Fact {
	size := cli.ByteSize(in.Bytes)
	if in.FileBytes != in.Bytes {
		size = cli.ByteSize(in.FileBytes) + " and " + cli.ByteSize(in.Bytes-in.FileBytes) + " of external data"
	}
	var opsets []string
	for _, o := range in.Opsets {
		opsets = append(opsets, strings.TrimSpace(cli.Name(o.Domain)+" "+fmt.Sprint(o.Version)))
	}
	facts := []cli.Fact{
		{Label: "model", Text: cli.Printable(path) + ", " + size},
		{Label: "opset", Text: cli.Listed(opsets)},
		{Label: "IR", Text: fmt.Sprint(in.IR)},
	}
	if in.Producer != "" {
		facts = append(facts, cli.Fact{Label: "producer", Text: cli.Name(in.Producer)})
	}
	graph := english.Plural(in.Nodes, "node", "")
	for _, n := range []struct {
		count int
		what  string
	}{{in.Subgraphs, "subgraphs"}, {in.Functions, "functions"}} {
		if n.count > 0 {
			graph += fmt.Sprintf(", %d %s", n.count, n.what)
		}
	}
	if in.Graph != "" {
		graph += ", " + cli.Name(in.Graph)
	}
	if p := in.Fingerprint; p != nil && p.SHA256 != "" {
		facts = append(facts, cli.Fact{Label: "sha256", Text: p.SHA256})
	} else if p != nil {
		facts = append(facts, cli.Fact{Label: "sha256", Text: p.Structure + " without the contents of tensors"})
	}
	facts = append(facts, cli.Labelled("made by", provenanceTexts(in.Provenance))...)
	facts = append(facts, cli.Fact{Label: "graph", Text: graph}, cli.Fact{Label: "operators", Text: cli.Listed(cli.Counts(in.Operators))})
	facts = append(facts, valueFacts("inputs", in.Inputs)...)
	facts = append(facts, valueFacts("outputs", in.Outputs)...)
	var types, external []string
	for _, t := range in.Types {
		types = append(types, fmt.Sprintf("%d %s, %s", t.Tensors, t.DType, cli.ByteSize(t.Bytes)))
	}
	for _, f := range in.External {
		external = append(external, fmt.Sprintf("%s, %s: %s, %s", cli.Name(f.Name), cli.ByteSize(f.Bytes), english.Plural(f.Tensors, "tensor", ""), cli.ByteSize(f.Used)))
	}
	return slices.Concat(facts, cli.Labelled("tensors", types), activationFacts(in.Activations), cli.Labelled("external", cli.First(maxLines, external)))
}

// provenanceTexts has a line for each conversion that made a model, and one for its input.
func provenanceTexts(steps []spec.Step) (texts []string) {
	for _, s := range steps {
		texts = append(texts, cli.Printable(strings.Join(strings.Fields(s.Tool+" "+s.Version+" "+s.Command+" "+s.Options), " ")))
		if in := s.Input; in != nil {
			texts = append(texts, "from "+cli.ByteSize(in.Bytes)+", "+cli.Printable(hashTexts(in)))
		}
	}
	return cli.First(2*maxLines, texts)
}

// hashTexts labels the hashes of a model.
func hashTexts(in *spec.StepInput) string {
	text := "sha256 " + in.SHA256
	if in.Structure != "" {
		text = "sha256 of its structure " + in.Structure
	}
	if len(in.Data) > 0 {
		text += ", of external data " + strings.Join(cli.First(maxLines, in.Data), ", ")
	}
	if in.Unhashed > 0 {
		text += "; " + cli.ByteSize(in.Unhashed) + " of weights not hashed"
	}
	return text
}

// maxLines limits the lines of one kind.
const maxLines = 8

func valueFacts(label string, values []inspect.NamedType) []cli.Fact {
	var texts []string
	for _, v := range values {
		texts = append(texts, cli.Name(v.Name)+": "+cli.Clip(cli.Printable(v.Type), cli.MaxText))
	}
	return cli.Labelled(label, cli.First(maxLines, texts))
}

// quantizedRows lists all quantized weights.
func quantizedRows(weights []*recognize.Weight) [][]string {
	rows := [][]string{{"NAME", "SHAPE", "FORM", "CODES", "BLOCK", "BYTES", "READ BY"}}
	for _, q := range weights {
		read := readers(q.Consumers)
		if q.Obstacle != "" {
			read += "; not decoded: " + cli.Printable(q.Obstacle)
		}
		rows = append(rows, []string{cli.Named(q.Name, q.Node), cli.Shape(q.Shape), q.Form, q.CodeType, blockText(q), cli.ByteSize(q.Bytes), read})
	}
	return rows
}

// quantizedSums counts the quantized weights of each kind.
func quantizedSums(weights []*recognize.Weight) [][]string {
	type kind struct{ form, codes, block, obstacle string }
	type sum struct {
		weights int
		bytes   int64
	}
	var kinds []kind // in the order of the weights
	sums := map[kind]*sum{}
	for _, q := range weights {
		k := kind{q.Form, q.CodeType, blockText(q), cli.Sentence(q.Obstacle)}
		if sums[k] == nil {
			sums[k] = &sum{}
			kinds = append(kinds, k)
		}
		sums[k].weights++
		sums[k].bytes += q.Bytes
	}
	rows := [][]string{{"WEIGHTS", "FORM", "CODES", "BLOCK", "BYTES", "NOT DECODED"}}
	for _, k := range kinds {
		rows = append(rows, []string{fmt.Sprint(sums[k].weights), k.form, k.codes, k.block, cli.ByteSize(sums[k].bytes), cmp.Or(k.obstacle, "-")})
	}
	return rows
}

func blockText(q *recognize.Weight) string {
	switch {
	case q.Block != 0:
		return fmt.Sprint(q.Block)
	case q.PerTensor:
		return "tensor"
	case q.Scale == "":
		return "-"
	}
	return "channel"
}

// readers lists what reads a tensor, equal readers once with their number.
func readers(list []string) string {
	var each []string
	number := map[string]int{}
	for _, r := range list {
		if number[r]++; number[r] == 1 {
			each = append(each, r)
		}
	}
	for i, r := range each {
		if number[r] > 1 {
			each[i] = fmt.Sprintf("%s (%d)", r, number[r])
		}
	}
	return cli.Clip(cli.Printable(strings.Join(each, ", ")), cli.MaxName)
}

// listedSize is the least size of a listed tensor that stays in float, in bytes.
const listedSize = 1 << 10

func ledgerRows(tensors []onnxq.TensorPlan, all bool) [][]string {
	rows := [][]string{slices.Concat(tensorHeading, []string{"FORM", "READ BY"})}
	small, bytes := 0, int64(0)
	for _, t := range tensors {
		if !all && t.Decision == onnxq.Keep && t.Bytes < listedSize {
			small++
			bytes += t.Bytes
			continue
		}
		read := readers(t.Consumers)
		rows = append(rows, append(tensorRow(t), cmp.Or(t.Form, "-"), cmp.Or(read, "-")))
	}
	if small > 0 {
		rows = append(rows, []string{fmt.Sprintf("%d below 1 KiB", small), "-", "-", string(onnxq.Keep), "-", "-", "-", cli.ByteSize(bytes)})
	}
	return rows
}

// hazardFacts lists, for each problem, the runtime, the effect and the text, with the places below.
func hazardFacts(hazards []inspect.Hazard, all bool) []cli.Fact {
	var facts []cli.Fact
	for _, h := range hazards {
		var where []string
		for _, at := range h.Where {
			where = append(where, cli.Name(at))
		}
		if !all {
			where = cli.First(3, where)
		}
		texts := []string{string(h.Effect) + ": " + h.Text}
		if len(where) > 0 {
			texts = append(texts, "at "+strings.Join(where, ", "))
		}
		facts = append(facts, cli.Labelled(h.Runtime, texts)...)
	}
	return facts
}
