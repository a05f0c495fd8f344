package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dustin/go-humanize/english"

	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/recognize"
)

type inspectFlags struct {
	planFlags
	json, all, help bool
}

func (f *inspectFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	f.planFlags.define(fs)
	fs.BoolVar(&f.all, "all", false, "list everything: each quantized weight, small tensors, all\nplaces")
	fs.BoolVar(&f.json, "json", false, "print everything as JSON")
	fs.BoolVarP(&f.help, "help", "h", false, helpUsage)
	return fs
}

func inspectCommand() command {
	return command{
		name: "inspect", summary: "show the contents, plan and known problems of a model",
		args:    []string{"[flags] MODEL"},
		example: "model.onnx",
		text: `Prints the contents of a model (versions, tensors by type, external files, quantized
weights of any tool), the plan of a conversion with the same flags, and known problems
of runtimes with the model.`,
		after: `Exit status: 0 also if there are problems; 1 the model cannot be read; 2 wrong usage.`,
		flags: func() *pflag.FlagSet { return new(inspectFlags).flagSet() },
		run:   runInspect,
	}
}

func runInspect(_ context.Context, c *console, args []string) error {
	var f inspectFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.help("inspect")
	}
	if fs.NArg() != 1 {
		return wrongCount("inspect takes one model", fs)
	}
	if err := f.planFlags.finish(fs); err != nil {
		return err
	}
	m, err := onnxq.Open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer m.Close()
	in := inspect.Model(m, f.opts)
	if f.json {
		return c.json(in)
	}
	printInspection(c.stdout, fs.Arg(0), in, f.all)
	return nil
}

func printInspection(w io.Writer, path string, in *inspect.Inspection, all bool) {
	printFacts(w, modelFacts(path, in))
	if len(in.Quantized) > 0 {
		fmt.Fprintln(w, "\nQuantized weights:")
		if all {
			printTable(w, quantizedRows(in.Quantized))
		} else {
			printTable(w, quantizedSums(in.Quantized))
		}
	}
	if in.Plan != nil && len(in.Plan.Tensors) > 0 {
		fmt.Fprintln(w, "\nFloat tensors and their plan:")
		printTable(w, ledgerRows(in.Plan.Tensors, all))
		fmt.Fprintln(w)
		printFacts(w, planFacts(in.Plan))
		for _, warning := range in.Plan.Warnings {
			printFacts(w, []fact{{"warning", printable(warning)}})
		}
	} else if in.NoPlan != "" {
		fmt.Fprintln(w)
		printFacts(w, []fact{{"no plan", printable(in.NoPlan)}})
	}
	if len(in.Hazards) > 0 {
		fmt.Fprintln(w, "\nKnown problems:")
		printSummaryFacts(w, hazardFacts(in.Hazards, all))
	}
}

func modelFacts(path string, in *inspect.Inspection) []fact {
	size := byteSize(in.Bytes)
	if in.FileBytes != in.Bytes {
		size = byteSize(in.FileBytes) + " and " + byteSize(in.Bytes-in.FileBytes) + " of external data"
	}
	var opsets []string
	for _, o := range in.Opsets {
		opsets = append(opsets, strings.TrimSpace(name(o.Domain)+" "+fmt.Sprint(o.Version)))
	}
	facts := []fact{
		{"model", printable(path) + ", " + size},
		{"opset", listed(opsets)},
		{"IR", fmt.Sprint(in.IR)},
	}
	if in.Producer != "" {
		facts = append(facts, fact{"producer", name(in.Producer)})
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
		graph += ", " + name(in.Graph)
	}
	if p := in.Fingerprint; p != nil && p.SHA256 != "" {
		facts = append(facts, fact{"sha256", p.SHA256})
	} else if p != nil {
		facts = append(facts, fact{"sha256", p.Structure + " without the contents of tensors"})
	}
	facts = append(facts, labelled("made by", provenanceTexts(in.Provenance))...)
	facts = append(facts, fact{"graph", graph}, fact{"operators", listed(counts(in.Operators))})
	facts = append(facts, valueFacts("inputs", in.Inputs)...)
	facts = append(facts, valueFacts("outputs", in.Outputs)...)
	var types, external []string
	for _, t := range in.Types {
		types = append(types, fmt.Sprintf("%d %s, %s", t.Tensors, t.DType, byteSize(t.Bytes)))
	}
	for _, f := range in.External {
		external = append(external, fmt.Sprintf("%s, %s: %s, %s", name(f.Name), byteSize(f.Bytes), english.Plural(f.Tensors, "tensor", ""), byteSize(f.Used)))
	}
	return slices.Concat(facts, labelled("tensors", types), activationFacts(in.Activations), labelled("external", first(maxLines, external)))
}

// provenanceTexts has a line for each conversion that made a model, and one for its input.
func provenanceTexts(steps []provenance.Step) (texts []string) {
	for _, s := range steps {
		texts = append(texts, printable(strings.Join(strings.Fields(s.Tool+" "+s.Version+" "+s.Command+" "+s.Options), " ")))
		if in := s.Input; in != nil {
			texts = append(texts, "from "+byteSize(in.Bytes)+", "+printable(hashTexts(in)))
		}
	}
	return first(2*maxLines, texts)
}

// hashTexts says what the hashes of a model are of.
func hashTexts(in *provenance.Input) string {
	text := "sha256 " + in.SHA256
	if in.Structure != "" {
		text = "sha256 of its structure " + in.Structure
	}
	if len(in.Data) > 0 {
		text += ", of external data " + strings.Join(first(maxLines, in.Data), ", ")
	}
	if in.Unhashed > 0 {
		text += "; " + byteSize(in.Unhashed) + " of weights not hashed"
	}
	return text
}

// maxLines limits the lines of one kind.
const maxLines = 8

func valueFacts(label string, values []inspect.NamedType) []fact {
	var texts []string
	for _, v := range values {
		texts = append(texts, name(v.Name)+": "+clip(printable(v.Type), maxText))
	}
	return labelled(label, first(maxLines, texts))
}

// quantizedRows lists all quantized weights.
func quantizedRows(weights []*recognize.Weight) [][]string {
	rows := [][]string{{"NAME", "SHAPE", "FORM", "CODES", "BLOCK", "BYTES", "READ BY"}}
	for _, q := range weights {
		read := readers(q.Consumers)
		if q.Obstacle != "" {
			read += "; not decoded: " + printable(q.Obstacle)
		}
		rows = append(rows, []string{name(q.Name), shape(q.Shape), q.Form, q.CodeType, blockText(q), byteSize(q.Bytes), read})
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
		k := kind{q.Form, q.CodeType, blockText(q), sentence(q.Obstacle)}
		if sums[k] == nil {
			sums[k] = &sum{}
			kinds = append(kinds, k)
		}
		sums[k].weights++
		sums[k].bytes += q.Bytes
	}
	rows := [][]string{{"WEIGHTS", "FORM", "CODES", "BLOCK", "BYTES", "NOT DECODED"}}
	for _, k := range kinds {
		rows = append(rows, []string{fmt.Sprint(sums[k].weights), k.form, k.codes, k.block, byteSize(sums[k].bytes), cmp.Or(k.obstacle, "-")})
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
	return clip(printable(strings.Join(each, ", ")), maxName)
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
		rows = append(rows, []string{fmt.Sprintf("%d below 1 KiB", small), "-", "-", string(onnxq.Keep), "-", "-", "-", byteSize(bytes)})
	}
	return rows
}

// hazardFacts has for each problem the runtime, the effect, the problem, and below it where it is.
func hazardFacts(hazards []inspect.Hazard, all bool) []fact {
	var facts []fact
	for _, h := range hazards {
		var where []string
		for _, at := range h.Where {
			where = append(where, name(at))
		}
		if !all {
			where = first(3, where)
		}
		texts := []string{string(h.Effect) + ": " + h.Text}
		if len(where) > 0 {
			texts = append(texts, "at "+strings.Join(where, ", "))
		}
		facts = append(facts, labelled(h.Runtime, texts)...)
	}
	return facts
}
