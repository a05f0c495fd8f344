package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/formats/gguf"
	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
)

// ggufFlags are the flags of the command gguf.
type ggufFlags struct {
	opts              onnxq.GGUFOptions
	names, importance string

	list           bool
	dryRun, json   bool
	quiet, verbose bool
	help           bool
}

func (f *ggufFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	o := &f.opts
	fs.Var(anyCase{&o.Mix, onnxq.Mixes(), "NAME"}, "mix",
		"the types of weights, named after the usual one:\n"+wrap(oneOf(onnxq.Mixes()))+"\n(default "+onnxq.DefaultMix+")")
	fs.Var(typeRules{&o.TensorTypes}, "tensor-type",
		"store what has a weight or node name that matches GLOB\nas TYPE: "+wrap(oneOf(onnxq.GGUFTypes()))+";\nmay be repeated, the last match holds")
	fs.Var(anyCase{&o.OutputType, onnxq.GGUFTypes(), "TYPE"}, "output-tensor-type",
		"store the weight that makes the output as TYPE")
	fs.Var(anyCase{&o.EmbeddingType, onnxq.GGUFTypes(), "TYPE"}, "token-embedding-type",
		"store embeddings as TYPE")
	fs.BoolVar(&o.Pure, "pure", false,
		"store all weights as the mix's usual type")
	fs.StringVar(&f.names, "names", "",
		"what tensors are called in OUT, a JSON `FILE`")
	fs.Var(metadata{&o.Metadata}, "metadata",
		"add a key, such as general.architecture=str:llama, to\nOUT's metadata; may be repeated")
	fs.StringVar(&f.importance, "imatrix", "",
		"how much the columns of weights count, a `FILE` of\nllama-imatrix")
	fs.Var(notNegative(&o.Threads), "threads",
		"threads to use (default: one for each CPU)")
	fs.Var(byteCount{&o.Memory}, "memory",
		"buffers for tensors, all threads together, such as 32MiB\n(default 64MiB)")
	fs.BoolVar(&f.list, "list", false,
		"print what the GGUF file FILE holds")
	fs.BoolVar(&f.dryRun, "dry-run", false,
		"write nothing; print what would become of each tensor")
	fs.BoolVar(&f.json, "json", false,
		"print the report, the plan or the list as JSON")
	fs.BoolVar(&f.quiet, "quiet", false,
		"print nothing but errors, warnings and what was asked for")
	fs.BoolVar(&f.verbose, "verbose", false,
		"list what became of each tensor")
	fs.BoolVarP(&f.help, "help", "h", false,
		"print this help")
	return fs
}

// wrap breaks a list for the help.
func wrap(list string) string {
	const width = 48
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(list) {
		switch {
		case i > 0 && line+len(word) > width:
			b.WriteByte('\n')
			line = 0
		case i > 0:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		line += len(word) + 1
	}
	return b.String()
}

// anyCase is the value of a flag that takes one word of a few, in letters of either
// case.
type anyCase struct {
	value   *string
	allowed []string
	kind    string // of word, for the help
}

func (a anyCase) Set(s string) error {
	i := slices.IndexFunc(a.allowed, func(word string) bool { return strings.EqualFold(word, s) })
	if i < 0 {
		return errors.New("want " + oneOf(a.allowed))
	}
	*a.value = a.allowed[i]
	return nil
}

func (a anyCase) String() string { return "" }
func (a anyCase) Type() string   { return a.kind }

// typeRules is the value of a flag that takes GLOB=TYPE. A glob may hold =.
type typeRules struct{ value *[]onnxq.TypeRule }

func (t typeRules) Set(s string) error {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 || i == len(s)-1 {
		return errors.New("want GLOB=TYPE")
	}
	*t.value = append(*t.value, onnxq.TypeRule{Pattern: s[:i]})
	return anyCase{&(*t.value)[len(*t.value)-1].Type, onnxq.GGUFTypes(), ""}.Set(s[i+1:])
}

func (t typeRules) String() string { return "" }
func (t typeRules) Type() string   { return "GLOB=TYPE" }

// metadata is the value of a flag that takes KEY=TYPE:VALUE.
type metadata struct{ value *[]gguf.KeyValue }

func (m metadata) Set(s string) error {
	key, rest, ok := strings.Cut(s, "=")
	typ, text, typed := strings.Cut(rest, ":")
	if !ok || !typed || key == "" {
		return errors.New("want KEY=TYPE:VALUE")
	}
	v, err := metadataValue(typ, text)
	if err != nil {
		return err
	}
	*m.value = append(*m.value, gguf.KeyValue{Key: key, Value: v})
	return nil
}

func (m metadata) String() string { return "" }
func (m metadata) Type() string   { return "KEY=TYPE:VALUE" }

var metadataTypes = []string{"str", "bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"}

func metadataValue(typ, text string) (any, error) {
	bad := fmt.Errorf("%q is no %s", text, typ)
	switch typ {
	case "str":
		return text, nil
	case "bool":
		if text != "true" && text != "false" {
			return nil, bad
		}
		return text == "true", nil
	}
	if !slices.Contains(metadataTypes, typ) {
		return nil, errors.New("want a type of " + oneOf(metadataTypes))
	}
	bits, _ := strconv.Atoi(typ[1:])
	var u uint64
	var i int64
	var f float64
	var err error
	switch typ[0] {
	case 'u':
		u, err = strconv.ParseUint(text, 10, bits)
	case 'i':
		i, err = strconv.ParseInt(text, 10, bits)
	case 'f':
		f, err = strconv.ParseFloat(text, bits)
	}
	if err != nil {
		return nil, bad
	}
	return map[string]any{
		"u8": uint8(u), "u16": uint16(u), "u32": uint32(u), "u64": u,
		"i8": int8(i), "i16": int16(i), "i32": int32(i), "i64": i,
		"f32": float32(f), "f64": f,
	}[typ], nil
}

func runGGUF(ctx context.Context, c *console, args []string) error {
	var f ggufFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		fmt.Fprint(c.stdout, `Usage: onnxquant gguf [flags] IN.onnx OUT.gguf
       onnxquant gguf --list [--json] FILE.gguf

Writes the weights of the ONNX model IN to the GGUF file OUT, which appears whole or
not at all. A weight that MatMul, Gemm or Gather reads is stored as rows of what is
summed over and gets the type that the mix has for it; others keep their type.

Flags:
`, fs.FlagUsages(), `
docs/gguf.md tells of mixes, names and metadata. Exit status: 0 done; 1 the input or
the conversion failed; 2 wrong usage.
`)
		return nil
	}
	if f.quiet && f.verbose {
		return usagef("--quiet and --verbose exclude each other")
	}
	if f.list {
		if fs.NArg() != 1 {
			return usagef("--list shows one file, but %d are named", fs.NArg())
		}
		return listGGUF(c, fs.Arg(0), f.json)
	}
	files := convertFlags{dryRun: f.dryRun}
	in, out, err := files.files(fs.Args())
	if err != nil {
		return err
	}
	if strings.EqualFold(filepath.Ext(out), ".onnx") {
		return usagef("%s: gguf writes GGUF files, not ONNX models", printable(out))
	}
	return f.write(ctx, c, in, out)
}

// write writes the file, or prints what would be written.
func (f *ggufFlags) write(ctx context.Context, c *console, in, out string) (err error) {
	start := time.Now()
	if f.names != "" {
		if f.opts.Names, err = rules.LoadNames(f.names); err != nil {
			return err
		}
	}
	if f.importance != "" {
		if f.opts.Importance, err = rules.LoadImportance(f.importance); err != nil {
			return err
		}
	}
	m, err := onnxq.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	bar := newProgress(c, f.quiet)
	f.opts.Progress = bar.update
	p, err := m.PlanGGUF(f.opts)
	if err != nil {
		return err
	}
	if f.dryRun {
		return f.print(c, p, out)
	}
	report, err := p.Write(ctx, out)
	bar.clear()
	if err != nil {
		return err
	}
	for _, w := range p.Warnings {
		c.warn(w)
	}
	if f.verbose {
		printGGUFTensors(c.stderr, p, report)
	}
	if !f.quiet {
		printGGUFSummary(c.stderr, report, time.Since(start))
	}
	if f.json {
		return c.json(report)
	}
	return nil
}

// print prints the plan.
func (f *ggufFlags) print(c *console, p *onnxq.GGUFPlan, out string) error {
	if out != "" {
		if err := p.CheckOutput(out); err != nil {
			return err
		}
	}
	for _, w := range p.Warnings {
		c.warn(w)
	}
	if f.json {
		return c.json(p)
	}
	printGGUFTensors(c.stdout, p, nil)
	printFacts(c.stdout, ggufFacts(p))
	return nil
}

// printGGUFTensors prints what becomes of each tensor and, after that is done, how well
// it stands for its values.
func printGGUFTensors(w io.Writer, p *onnxq.GGUFPlan, r *onnxq.GGUFReport) {
	heading := []string{"NAME", "SHAPE", "DTYPE", "TYPE", "FILE SHAPE", "BYTES", "REASON"}
	quality := map[string]onnxq.GGUFQuality{}
	if r != nil {
		heading = append(heading, "SQNR", "LARGEST ERROR")
		for _, q := range r.Tensors {
			quality[q.Source] = q
		}
	}
	rows := [][]string{heading}
	for _, t := range p.Tensors {
		row := []string{name(t.Source), shape(t.Shape), t.DType, "-", "-", byteSize(t.Bytes) + " left out", t.Reason}
		if t.Name != "" {
			if t.Name != t.Source {
				row[0] += " = " + name(t.Name)
			}
			row[3], row[4], row[5] = t.Type, shape(t.FileShape), byteSize(t.Bytes)+" -> "+byteSize(t.OutBytes)
		}
		if row[6] = clip(printable(t.Reason), maxReason); t.Reason == "" {
			row[6] = "-"
		}
		if q, ok := quality[t.Source]; ok {
			row = append(row, decibels(q.SQNR), fmt.Sprintf("%.3g", q.MaxError))
		}
		rows = append(rows, row)
	}
	printTable(w, rows)
	fmt.Fprintln(w)
}

func printGGUFSummary(w io.Writer, r *onnxq.GGUFReport, elapsed time.Duration) {
	facts := ggufFacts(r.Plan)
	worst := r.Tensors[0]
	for _, q := range r.Tensors {
		if q.SQNR < worst.SQNR {
			worst = q
		}
	}
	printFacts(w, append(facts,
		fact{"worst", fmt.Sprintf("%s: SQNR %s, largest error %.3g", name(worst.Source), decibels(worst.SQNR), worst.MaxError)},
		fact{"time", fmt.Sprintf("%.2f s", elapsed.Seconds())},
		fact{"written", printable(r.Output) + ", read back and checked"}))
}

// ggufFacts counts the types.
func ggufFacts(p *onnxq.GGUFPlan) []fact {
	types, skipped := map[string]int{}, map[string]int{}
	for _, t := range p.Tensors {
		if t.Name != "" {
			types[t.Type]++
		} else {
			skipped[t.Reason]++
		}
	}
	facts := []fact{
		{"mix", fmt.Sprintf("%s, %.2f bits per weight", p.Mix, p.Bits)},
		{"tensors", strings.Join(counts(types), ", ")},
	}
	if len(skipped) > 0 {
		facts = append(facts, fact{"left out", strings.Join(counts(skipped), ", ")})
	}
	return append(facts, fact{"size", sizes(p.InBytes, p.OutBytes)})
}
