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
	"onnxquant/verify"
)

type verifyFlags struct {
	opts                       verify.Options
	minSQNR, maxError          float64
	json, quiet, verbose, help bool
}

func (f *verifyFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	o := &f.opts
	fs.Var(limit{&f.minSQNR, "DB"}, "min-sqnr", "fail if the SQNR of a weight or an output is below DB")
	fs.Var(limit{&f.maxError, "E"}, "max-error", "fail if an element of a weight or an output is off by\nmore than E")
	fs.Var(choice[verify.Engine]{&o.Engine, verify.Engines, "ENGINE"}, "engine",
		"what runs the models: go, ort (ONNX Runtime), none, or\nauto: go, or else ort (default auto)")
	fs.StringVar(&o.ORTLibrary, "ort-lib", "", "the shared library of ONNX Runtime, a `FILE` (default:\nfound in the usual places)")
	fs.StringArrayVar(&o.Inputs, "inputs", nil, "a `FILE` .pb, .npy or .npz with inputs; may be repeated\n(default: random ones)")
	fs.Uint64Var(&o.Seed, "seed", 0, "`N` decides the random inputs (default 0)")
	fs.Var(sizesOf{&o.Dims}, "dim", "the size of a symbolic dimension; may be repeated")
	fs.BoolVar(&f.json, "json", false, "print the report as JSON")
	fs.BoolVar(&f.quiet, "quiet", false, "print nothing; the exit status tells")
	fs.BoolVar(&f.verbose, "verbose", false, "list every weight, note and failure")
	fs.BoolVarP(&f.help, "help", "h", false, "print this help")
	return fs
}

func runVerify(ctx context.Context, c *console, args []string) error {
	var f verifyFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		fmt.Fprint(c.stdout, `Usage: onnxquant verify [flags] IN OUT

Compares the float model IN with the quantized model OUT, from any tool: whether
anything but weights changed, how far each weight is from what it was, and how far
the outputs are from each other when both run on the same inputs, with the weights
of OUT folded back to float.

Flags:
`, fs.FlagUsages(), `
Exit status: 0 all is well; 1 something besides weights changed, a limit is passed,
or a file cannot be read; 2 wrong usage.
`)
		return nil
	}
	if fs.NArg() != 2 {
		return usagef("verify compares two models, but %d files are named", fs.NArg())
	}
	if fs.Changed("min-sqnr") {
		f.opts.MinSQNR = &f.minSQNR
	}
	if fs.Changed("max-error") {
		f.opts.MaxError = &f.maxError
	}
	report, err := verify.Models(ctx, fs.Arg(0), fs.Arg(1), f.opts)
	switch {
	case err != nil:
		return err
	case f.quiet:
	case f.json:
		err = c.json(report)
	default:
		f.print(c.stdout, report)
	}
	if err == nil && !report.Passed {
		return errNo
	}
	return err
}

// print prints what was found, of notes and failures the first few unless all are
// asked for.
func (f *verifyFlags) print(w io.Writer, r *verify.Report) {
	if f.verbose && len(r.Weights) > 0 {
		rows := [][]string{{"NAME", "SHAPE", "DTYPE", "CODES", "FORM", "SQNR", "LARGEST ERROR", "MSE", "WORST BLOCK"}}
		for _, m := range r.Weights {
			worst := "-"
			if b := m.Worst; b != nil {
				worst = fmt.Sprintf("%s, %d from %v", decibels(b.SQNR), b.Length, b.At)
			}
			rows = append(rows, []string{name(m.Name), shape(m.Shape), m.DType, cmp.Or(m.CodeType, "-"), m.Form, decibels(m.SQNR),
				fmt.Sprintf("%.3g", m.MaxError), fmt.Sprintf("%.3g", m.MSE), worst})
		}
		printTable(w, rows)
		fmt.Fprintln(w)
	}
	const most = 8
	facts := []fact{{"structure", structureText(r.Structure)}}
	for i, note := range r.Structure.Notes {
		if i == most && !f.verbose {
			facts = append(facts, fact{"", fmt.Sprintf("and %d other notes", len(r.Structure.Notes)-i)})
			break
		}
		facts = append(facts, fact{"", printable(note)})
	}
	facts = append(facts, fact{"weights", weightsText(r)})
	if len(r.Weights) > 0 {
		worst := slices.MinFunc(r.Weights, func(a, b onnxq.WeightMatch) int { return cmp.Compare(a.SQNR, b.SQNR) })
		facts = append(facts, fact{"worst", fmt.Sprintf("%s: SQNR %s, largest error %.3g", name(worst.Name), decibels(worst.SQNR), worst.MaxError)})
	}
	facts = append(facts, executionFacts(r.Execution)...)
	switch {
	case r.Passed && !r.Execution.Compared:
		facts = append(facts, fact{"verdict", "passed; the outputs were not compared"})
	case r.Passed:
		facts = append(facts, fact{"verdict", "passed"})
	}
	for i, failure := range r.Failures {
		about := "verdict"
		if i > 0 {
			about = ""
		}
		if i == most && !f.verbose {
			facts = append(facts, fact{"", fmt.Sprintf("and %d other failures", len(r.Failures)-i)})
			break
		}
		facts = append(facts, fact{about, "failed: " + printable(failure)})
	}
	printFacts(w, facts)
}

func structureText(s verify.Structure) string {
	if len(s.Problems) > 0 {
		return fmt.Sprintf("%d nodes; differences besides weights: %d", s.Nodes, len(s.Problems))
	}
	return fmt.Sprintf("%d nodes; nothing but weights changed", s.Nodes)
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
	text := fmt.Sprintf("%d compared", len(r.Weights))
	if len(r.Weights) > 0 {
		text += ": " + strings.Join(counts(forms), ", ")
	}
	return text + fmt.Sprintf("; %d other constants equal", r.Same)
}

func executionFacts(x verify.Execution) []fact {
	var facts []fact
	if x.Compared {
		facts = append(facts, fact{"execution", x.Engine})
		for _, o := range x.Outputs {
			facts = append(facts, fact{"", fmt.Sprintf("%s %s: SQNR %s, largest error %.3g (%.2g of the largest), cosine %.6f",
				name(o.Name), shape(o.Dims), decibels(o.SQNR), o.MaxError, o.Relative, o.Cosine)})
		}
		return facts
	}
	facts = append(facts, fact{"execution", "the outputs were not compared"})
	for _, reason := range x.Reasons {
		facts = append(facts, fact{"", printable(reason)})
	}
	return facts
}
