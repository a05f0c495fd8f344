package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/recognize"
)

type inspectFlags struct {
	planFlags
	json, all, help bool
}

func (f *inspectFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	f.planFlags.define(fs)
	fs.BoolVar(&f.all, "all", false, "leave nothing out: each quantized weight, small tensors,\nevery place")
	fs.BoolVar(&f.json, "json", false, "print everything as JSON")
	fs.BoolVarP(&f.help, "help", "h", false, "print this help")
	return fs
}

func runInspect(_ context.Context, c *console, args []string) error {
	var f inspectFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		fmt.Fprint(c.stdout, `Usage: onnxquant inspect [flags] MODEL

Tells what a model holds: versions, tensors by type, external files, quantized
weights of any tool; what a conversion with the same flags would do with each float
tensor, and why not more; and what is known to go wrong where the model runs.

Flags:
`, fs.FlagUsages(), `
Exit status: 0, whatever is found; 1 the model cannot be read; 2 wrong usage.
`)
		return nil
	}
	if fs.NArg() != 1 {
		return usagef("inspect reads one model, but %d files are named", fs.NArg())
	}
	if err := f.planFlags.finish(fs); err != nil {
		return err
	}
	m, err := onnxq.Open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer m.Close()
	in := m.Inspect(f.opts)
	if f.json {
		return c.json(in)
	}
	printInspection(c.stdout, fs.Arg(0), in, f.all)
	return nil
}

func printInspection(w io.Writer, path string, in *onnxq.Inspection, all bool) {
	printFacts(w, modelFacts(path, in))
	if len(in.Quantized) > 0 {
		fmt.Fprintln(w, "\nQuantized weights:")
		printTable(w, quantizedRows(in.Quantized, all))
	}
	if in.Plan != nil && len(in.Plan.Tensors) > 0 {
		fmt.Fprintln(w, "\nFloat tensors, and what a conversion makes of them:")
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
		fmt.Fprintln(w, "\nHazards:")
		printTable(w, hazardRows(in.Hazards, all))
	}
}

func modelFacts(path string, in *onnxq.Inspection) []fact {
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
	graph := fmt.Sprintf("%d nodes", in.Nodes)
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
	facts = append(facts, fact{"graph", graph}, fact{"operators", listed(counts(in.Operators))})
	facts = append(facts, valueFacts("inputs", in.Inputs)...)
	facts = append(facts, valueFacts("outputs", in.Outputs)...)
	for i, t := range in.Types {
		about := "tensors"
		if i > 0 {
			about = ""
		}
		facts = append(facts, fact{about, fmt.Sprintf("%d %s, %s", t.Tensors, t.DType, byteSize(t.Bytes))})
	}
	for i, f := range in.External {
		about := "external"
		if i > 0 {
			about = ""
		}
		if i == mostLines {
			facts = append(facts, fact{"", fmt.Sprintf("%d other files", len(in.External)-i)})
			break
		}
		facts = append(facts, fact{about, fmt.Sprintf("%s, %s: %d tensors, %s", name(f.Name), byteSize(f.Bytes), f.Tensors, byteSize(f.Used))})
	}
	return facts
}

// mostLines of a kind are printed, if not all are asked for.
const mostLines = 8

func valueFacts(about string, values []onnxq.NamedType) []fact {
	var facts []fact
	for i, v := range values {
		if i == mostLines {
			return append(facts, fact{"", others(len(values) - i)})
		}
		facts = append(facts, fact{about, name(v.Name) + ": " + clip(printable(v.Type), maxReason)})
		about = ""
	}
	return facts
}

// quantizedRows lists the quantized weights, or counts those alike.
func quantizedRows(weights []*recognize.Weight, all bool) [][]string {
	if all {
		rows := [][]string{{"NAME", "SHAPE", "FORM", "CODES", "BLOCK", "BYTES", "READ BY"}}
		for _, q := range weights {
			read := clip(printable(strings.Join(q.Consumers, ", ")), maxName)
			if q.Obstacle != "" {
				read += "; not decoded: " + printable(q.Obstacle)
			}
			rows = append(rows, []string{name(q.Name), shape(q.Shape), q.Form, q.CodeType, blockText(q), byteSize(q.Bytes), read})
		}
		return rows
	}
	type kind struct{ form, codes, block, obstacle string }
	type sum struct {
		weights int
		bytes   int64
	}
	var kinds []kind // in the order in which they come
	sums := map[kind]*sum{}
	for _, q := range weights {
		k := kind{q.Form, q.CodeType, blockText(q), clip(printable(q.Obstacle), maxReason)}
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

// listedSize is the size in bytes from which tensors that stay in float are listed.
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
		read := clip(printable(strings.Join(t.Consumers, ", ")), maxName)
		rows = append(rows, append(tensorRow(t), cmp.Or(t.Form, "-"), cmp.Or(read, "-")))
	}
	if small > 0 {
		rows = append(rows, []string{fmt.Sprintf("%d smaller ones", small), "-", "-", string(onnxq.Keep), "-", "-", "-", byteSize(bytes)})
	}
	return rows
}

func hazardRows(hazards []onnxq.Hazard, all bool) [][]string {
	rows := [][]string{{"RUNTIME", "EFFECT", "WHAT", "WHERE"}}
	for _, h := range hazards {
		var where []string
		for i, at := range h.Where {
			if i == 3 && !all {
				where = append(where, others(len(h.Where)-i))
				break
			}
			where = append(where, name(at))
		}
		rows = append(rows, []string{h.Runtime, string(h.Effect), h.Text, strings.Join(where, ", ")})
	}
	return rows
}
