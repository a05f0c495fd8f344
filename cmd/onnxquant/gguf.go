package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
)

// ggufFlags are the flags of the command gguf.
type ggufFlags struct {
	reportFlags
	opts           ggufmodel.Options
	names, imatrix string

	list, dryRun bool
}

func (f *ggufFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	o := &f.opts
	fs.Var(cli.Choice[string]{Value: &o.Mix, Allowed: ggufmodel.Mixes(), Kind: "NAME"}, "mix",
		"types of weights, as in llama-quantize:\n"+cli.OneOf(ggufmodel.Mixes())+"\n(default "+ggufmodel.DefaultMix+")")
	fs.Var(typeRules{&o.TensorTypes}, "tensor-type",
		"store tensors whose name, or the name of a node that reads\nthem, matches GLOB as TYPE:\n"+cli.OneOf(ggufmodel.Types())+";\nmay be repeated, the last match wins")
	fs.Var(cli.Choice[string]{Value: &o.OutputType, Allowed: ggufmodel.Types(), Kind: "TYPE"}, "output-tensor-type",
		"type of the weight of the output layer")
	fs.Var(cli.Choice[string]{Value: &o.EmbeddingType, Allowed: ggufmodel.Types(), Kind: "TYPE"}, "token-embedding-type",
		"type of embeddings")
	fs.BoolVar(&o.Pure, "pure", false,
		"store all weights as the main type of the mix")
	fs.StringVar(&f.names, "names", "",
		"JSON `FILE` that maps names of tensors to names in OUT")
	fs.Var(metadata{&o.Metadata}, "metadata",
		"add a key to the metadata of OUT, such as\ngeneral.architecture=str:llama; may be repeated")
	fs.StringVar(&f.imatrix, "imatrix", "", imatrixUsage)
	defineResources(fs, &o.Threads, &o.Memory)
	fs.BoolVar(&f.list, "list", false,
		"print the contents of a GGUF file")
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, dryRunUsage)
	f.defineForce(fs)
	f.reportFlags.define(fs, "print the report, plan or list as JSON", "print a line for each tensor")
	return fs
}

func ggufCommand() cli.Command {
	return cli.Command{
		Name: "gguf", Summary: "write a model's weights to a GGUF file, or list one",
		Args:    []string{"[flags] IN.onnx OUT.gguf", "--list [--json] FILE.gguf"},
		Example: "in.onnx out.gguf", ExampleFor: func(flag string) string { return map[string]string{"list": "out.gguf"}[flag] },
		Text: `Writes the weights of the ONNX model IN to the GGUF file OUT. OUT is written completely
or not at all. Weights of MatMul, Gemm or Gather get the type that the mix has for them,
and are stored with rows along the reduction axis. Other tensors keep their type.`,
		After: `docs/gguf.md describes mixes, names and metadata. Exit status: 0 success; 1 the input or
the conversion failed; 2 wrong usage.`,
		Flags: func() *pflag.FlagSet { return new(ggufFlags).flagSet() },
		Run:   runGGUF,
	}
}

func runGGUF(ctx context.Context, c *cli.Console, args []string) error {
	var f ggufFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("gguf")
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.list {
		if fs.NArg() != 1 {
			return cli.WrongCount("--list takes one file", fs)
		}
		return listGGUF(c, fs.Arg(0), f.json)
	}
	if fs.NArg() == 1 && strings.EqualFold(filepath.Ext(fs.Arg(0)), ".gguf") {
		return cli.Usagef("%s is a GGUF file: --list prints its contents, --weights-from of a conversion reads it", cli.Printable(fs.Arg(0)))
	}
	in, out, err := cli.InOut(fs, f.dryRun)
	if err != nil {
		return err
	}
	if strings.EqualFold(filepath.Ext(out), ".onnx") {
		return cli.Usagef("%s: gguf writes GGUF files; to write an ONNX file, use onnxquant IN OUT", cli.Printable(out))
	}
	if err := cli.WantFile(in, out, ".gguf"); err != nil {
		return err
	}
	return f.write(ctx, c, in, out)
}

// write writes the file, or prints the plan.
func (f *ggufFlags) write(ctx context.Context, c *cli.Console, in, out string) (err error) {
	start := time.Now()
	if f.opts.Names, f.opts.Importance, err = loadNames(f.names, f.imatrix); err != nil {
		return err
	}
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	bar := cli.NewProgress(c, f.quiet)
	f.opts.Progress = bar.Update
	p, err := ggufmodel.NewPlan(m, f.opts)
	if err != nil {
		return err
	}
	if f.dryRun {
		return f.print(c, p, out)
	}
	if err := f.checkForce(out, modelfile.KindGGUF, in); err != nil {
		return err
	}
	report, err := p.Write(ctx, out)
	bar.Clear()
	if err != nil {
		return err
	}
	c.WarnAll(p.Warnings)
	c.WarnAll(report.Warnings)
	if f.verbose {
		printGGUFTensors(c.Stderr, p, report)
	}
	if !f.quiet {
		printGGUFSummary(c.Stderr, report, time.Since(start))
	}
	if f.json {
		return c.JSON(report)
	}
	return nil
}

// print prints the plan.
func (f *ggufFlags) print(c *cli.Console, p *ggufmodel.Plan, out string) error {
	if out != "" {
		if err := p.CheckOutput(out); err != nil {
			return err
		}
	}
	c.WarnAll(p.Warnings)
	if f.json {
		return c.JSON(p)
	}
	printGGUFTensors(c.Stdout, p, nil)
	cli.PrintFacts(c.Stdout, ggufFacts(p))
	return nil
}

// printGGUFTensors prints a table of the tensors, with their errors if r is not nil.
func printGGUFTensors(w io.Writer, p *ggufmodel.Plan, r *ggufmodel.Report) {
	heading := []string{"NAME", "SHAPE", "DTYPE", "TYPE", "FILE SHAPE", "BYTES", "REASON"}
	quality := map[string]ggufmodel.TensorReport{}
	if r != nil {
		heading = append(heading, "SQNR", "LARGEST ERROR")
		for _, q := range r.Tensors {
			quality[q.Source] = q
		}
	}
	rows := [][]string{heading}
	for _, t := range p.Tensors {
		row := []string{cli.Name(t.Source), cli.Shape(t.Shape), t.DType, "-", "-", cli.ByteSize(t.Bytes) + " left out", cmp.Or(cli.Sentence(t.Reason), "-")}
		if t.Name != "" {
			if t.Name != t.Source {
				row[0] += " = " + cli.Name(t.Name)
			}
			row[3], row[4], row[5] = t.Type, cli.Shape(t.FileShape), cli.ByteSize(t.Bytes)+" -> "+cli.ByteSize(t.OutBytes)
		}
		if q, ok := quality[t.Source]; ok {
			row = append(row, cli.Decibels(q.SQNR), fmt.Sprintf("%.3g", q.MaxError))
		}
		rows = append(rows, row)
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
}

func printGGUFSummary(w io.Writer, r *ggufmodel.Report, elapsed time.Duration) {
	facts := ggufFacts(r.Plan)
	worst := slices.MinFunc(r.Tensors, func(a, b ggufmodel.TensorReport) int { return cmp.Compare(a.SQNR, b.SQNR) })
	cli.PrintSummaryFacts(w, append(facts,
		cli.Fact{Label: "worst", Text: summary.ErrorText(worst.Source, "", worst.SQNR, worst.MaxError)},
		cli.Fact{Label: "time", Text: fmt.Sprintf("%.2f s", elapsed.Seconds())},
		summary.Written(r.Output, "", nil, true, r.Replaced)))
}

// ggufFacts counts the tensors by type, and the tensors left out by reason.
func ggufFacts(p *ggufmodel.Plan) []cli.Fact {
	types, skipped := map[string]int{}, map[string]int{}
	for _, t := range p.Tensors {
		if t.Name != "" {
			types[t.Type]++
		} else {
			skipped[t.Reason]++
		}
	}
	facts := []cli.Fact{
		{Label: "mix", Text: fmt.Sprintf("%s, %.2f bits per weight", p.Mix, p.Bits)},
		{Label: "tensors", Text: strings.Join(cli.Counts(types), ", ")},
	}
	if len(skipped) > 0 {
		facts = append(facts, cli.Fact{Label: "left out", Text: strings.Join(cli.Counts(skipped), ", ")})
	}
	return append(facts, cli.Fact{Label: "size", Text: cli.Sizes(p.InBytes, p.OutBytes)})
}
