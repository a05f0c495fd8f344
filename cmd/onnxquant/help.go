package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"onnxquant/internal/nearest"
)

func helpCommand() command {
	return command{
		name: "help", summary: "show the help of a command or a flag, or all",
		args:    []string{"", "all", "COMMAND", "FLAG", "COMMAND FLAG", "man [COMMAND]"},
		example: "block",
		text: `Shows the short help; all of it; that of a command or a flag; or a manual page, which
man -l reads.`,
		flags: helpFlagAlone,
		run:   runHelp,
	}
}

// helpFlagAlone is the flag set of commands that have no other flag.
func helpFlagAlone() *pflag.FlagSet {
	fs := newFlagSet()
	fs.BoolP("help", "h", false, helpUsage)
	return fs
}

func runHelp(ctx context.Context, c *console, args []string) error {
	switch {
	case len(args) == 0:
		printShortHelp(c.stdout)
		return nil
	case args[0] == "man":
		return helpMan(c, args[1:])
	case len(args) > 2:
		return usagef("help takes a command, a flag, or both, got %d words", len(args))
	case len(args) == 2:
		cmd, ok := commandNamed(args[0])
		if !ok {
			return usagef("there is no command %s%s", args[0], nearestCommand(args[0]))
		}
		return cmd.helpOnFlag(c.stdout, args[1])
	case args[0] == "all":
		conversion().printHelp(c.stdout)
		return nil
	case args[0] == "-h" || args[0] == "--help" || args[0] == "-help":
		return c.help("help")
	}
	if cmd, ok := commandNamed(args[0]); ok {
		cmd.printHelp(c.stdout)
		return nil
	}
	return helpOnFlag(c.stdout, args[0])
}

// help prints the help of a command.
func (c *console) help(name string) error {
	cmd, _ := commandNamed(name)
	cmd.printHelp(c.stdout)
	return nil
}

// helpFor returns the command line that prints the help for args, or that for a flag of
// theirs.
func helpFor(args []string, flag string) string {
	words := "onnxquant help"
	if len(args) > 1 && args[0] == "help" {
		args = args[1:]
	}
	if len(args) > 0 {
		if cmd, ok := commandNamed(args[0]); ok && cmd.name != "" && cmd.name != "help" {
			words += " " + cmd.name
		}
	}
	if flag != "" {
		words += " " + flag
	}
	if words == "onnxquant help" {
		return "onnxquant --help"
	}
	return words
}

// nearestCommand suggests a command for a misspelt one.
func nearestCommand(word string) string {
	var names []string
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	if near, ok := nearest.Name(strings.ToLower(word), names); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// helpWidth is the width of the help, in columns.
const helpWidth = 80

// daily lists the flags in the short help, which fits on a screen, and what it says of each.
var daily = []struct{ flag, text string }{
	{"bits", "bits of a code: 2, 4 or 8 (default 4)"},
	{"block", "weights that share a scale; -1: a channel (default 128)"},
	{"format", "int4, uint8, nvfp4, mxfp8, nf4, q4_k, ..., for --bits"},
	{"zero-point", "asymmetric codes"},
	{"algorithm", "how codes are found: rtn, mse, best, ... (default rtn)"},
	{"target", "for portable, ort, ort-web, tensorrt, openvino or qnn"},
	{"ops", "operators whose weights are quantized, or all"},
	{"exclude", "keep weights with such a name in float"},
	{"float16", "make float16 what stays in float"},
	{"dry-run", "write nothing; show the plan, with reasons"},
}

// rare lists commands that the short help only names.
var rare = []string{"completion", "help", "version"}

// printShortHelp prints the flags of daily use and the commands.
func printShortHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: onnxquant [flags] IN OUT    quantize the weights of the ONNX model IN
       onnxquant COMMAND ...

`)
	fs := conversion().flags()
	for _, d := range daily {
		flag := fs.Lookup(d.flag)
		kind, _ := pflag.UnquoteUsage(flag)
		short := "    "
		if flag.Shorthand != "" {
			short = "-" + flag.Shorthand + ", "
		}
		fmt.Fprintf(w, "  %s%-18s %s\n", short, strings.TrimSpace("--"+d.flag+" "+kind), d.text)
	}
	fmt.Fprintln(w)
	for _, cmd := range commands() {
		if !slices.Contains(rare, cmd.name) {
			fmt.Fprintf(w, "  %-11s %s\n", cmd.name, cmd.summary)
		}
	}
	fmt.Fprintf(w, `  %s

Example: onnxquant -bits 4 -block 128 in.onnx out.onnx
'onnxquant help all' shows everything, 'onnxquant help COMMAND' a command,
'onnxquant help FLAG' a flag with an example.
`, strings.Join(rare, ", "))
}

// printHelp prints the help of a command with all its flags.
func (cmd command) printHelp(w io.Writer) {
	for i, args := range cmd.args {
		label := "Usage:"
		if i > 0 {
			label = "      "
		}
		fmt.Fprintln(w, strings.TrimRight(label+" "+cmd.line(args), " "))
	}
	fmt.Fprintf(w, "\n%s\n\nFlags:\n%s", wrapText(cmd.text), usages(cmd.flags()))
	if cmd.name == "" {
		fmt.Fprint(w, "\nCommands:\n")
		for _, cmd := range commands() {
			fmt.Fprintf(w, "  %-11s %s\n", cmd.name, cmd.summary)
		}
	}
	if cmd.after != "" {
		fmt.Fprintf(w, "\n%s\n", wrapText(cmd.after))
	}
}

// line is a command line of the command.
func (cmd command) line(args string) string {
	words := []string{"onnxquant"}
	for _, word := range []string{cmd.name, args} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// usages describes flags within helpWidth.
func usages(fs *pflag.FlagSet) string {
	fs.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "\n", " ") })
	return fs.FlagUsagesWrapped(helpWidth)
}

// helpOnFlag describes a flag of any command, first that of a conversion. Commands in which
// it is the same are named together.
func helpOnFlag(w io.Writer, name string) error {
	type meaning struct {
		cmd  command
		in   []string
		text string
	}
	var meanings []*meaning
	var names, bears []string // bears: flags with a value of this name
	var value string
	for _, cmd := range allCommands() {
		cmd.flags().VisitAll(func(f *pflag.Flag) {
			if v, ok := f.Value.(interface{ values() []string }); ok && !slices.Contains(bears, "--"+f.Name) {
				if i := slices.IndexFunc(v.values(), func(v string) bool { return strings.EqualFold(v, name) }); i >= 0 {
					bears, value = append(bears, "--"+f.Name), v.values()[i]
				}
			}
		})
		names = append(append(names, cmd.name), flagNames(cmd.flags())...)
		flag := lookup(cmd.flags(), name)
		if flag == nil {
			continue
		}
		text := usage(flag)
		i := slices.IndexFunc(meanings, func(m *meaning) bool { return m.text == text })
		if i < 0 {
			i = len(meanings)
			meanings = append(meanings, &meaning{cmd: cmd, text: text})
		}
		meanings[i].in = append(meanings[i].in, cmd.line(""))
	}
	switch {
	case len(meanings) > 0:
	case len(bears) > 0:
		fmt.Fprintf(w, "%s is a value of %s.\n\n", value, oneAnd(bears))
		return helpOnFlag(w, bears[0])
	default:
		word := plainName(strings.TrimLeft(name, "-"))
		if text, ok := flagHints[word]; ok {
			return usagef("there is no command or flag %s; %s", name, text)
		}
		if near, ok := nearest.Name(word, names); ok {
			return usagef("there is no command or flag %s; did you mean %s?", name, near)
		}
		return usagef("there is no command or flag %s", name)
	}
	for i, m := range meanings {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, m.text)
		if len(m.in) > 1 || i > 0 || m.cmd.name != "" {
			fmt.Fprintf(w, "\n%s\n", wrapText("Flag of "+oneAnd(m.in)+"."))
		}
		fmt.Fprintf(w, "\nExample: %s\n", m.cmd.exampleOf(lookup(m.cmd.flags(), name)))
	}
	return nil
}

// helpOnFlag describes a flag of the command.
func (cmd command) helpOnFlag(w io.Writer, name string) error {
	fs := cmd.flags()
	flag := lookup(fs, name)
	if flag == nil {
		return usagef("%s has no flag %s%s", cmd.line(""), name, nearestFlag(fs, strings.TrimLeft(name, "-")))
	}
	fmt.Fprintf(w, "%s\nExample: %s\n", usage(flag), cmd.exampleOf(flag))
	return nil
}

// lookup finds a flag by its long or short name, with dashes or without; nil if there is none.
func lookup(fs *pflag.FlagSet, name string) *pflag.Flag {
	name = strings.TrimLeft(name, "-")
	if len(name) == 1 {
		return fs.ShorthandLookup(name)
	}
	return fs.Lookup(plainName(name))
}

// usage describes one flag, and those of its values that have a description.
func usage(f *pflag.Flag) string {
	fs := newFlagSet()
	fs.AddFlag(f)
	text := usages(fs)
	v, ok := f.Value.(interface{ values() []string })
	if !ok || aboutValue(f, v.values()[0]) == "" {
		return text
	}
	const indent = 19
	for _, word := range v.values() {
		lines := strings.ReplaceAll(wrap(aboutValue(f, word), helpWidth-indent), "\n", "\n"+strings.Repeat(" ", indent))
		text += fmt.Sprintf("\n  %-*s%s", indent-2, word, lines)
	}
	return text + "\n"
}

// aboutValue describes a value of a flag, or is "".
func aboutValue(f *pflag.Flag, word string) string {
	if v, ok := f.Value.(interface{ about(word string) string }); ok {
		return v.about(word)
	}
	return ""
}

func flagNames(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// wrapText breaks each paragraph of a text into lines of the help. Paragraphs that begin
// with a space stay as they are.
func wrapText(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrap(p, helpWidth)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// wrap breaks a text into lines of at most width columns.
func wrap(text string, width int) string {
	if utf8.RuneCountInString(text) <= width && !strings.Contains(text, "\n") {
		return text
	}
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch n := utf8.RuneCountInString(word); {
		case i > 0 && line+1+n > width:
			b.WriteByte('\n')
			line = n
		case i > 0:
			b.WriteByte(' ')
			line += 1 + n
		default:
			line = n
		}
		b.WriteString(word)
	}
	return b.String()
}
