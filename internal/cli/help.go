package cli

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

func HelpCommand() Command {
	return Command{
		Name: "help", Rare: true, Summary: "show the help of a command or a flag, or all",
		Args:    []string{"", "all", "COMMAND", "FLAG", "COMMAND FLAG", "man [COMMAND]"},
		Example: "block",
		Text: `Shows the short help; all of it; that of a command or a flag; or a manual page, which
man -l reads.`,
		Flags: HelpFlagAlone,
		Run:   runHelp,
	}
}

// HelpFlagAlone is the flag set of commands without other flags.
func HelpFlagAlone() *pflag.FlagSet {
	fs := NewFlagSet()
	fs.BoolP("help", "h", false, HelpUsage)
	return fs
}

func runHelp(ctx context.Context, c *Console, args []string) error {
	switch {
	case len(args) == 0:
		c.App.PrintShortHelp(c.Stdout)
		return nil
	case args[0] == "man":
		return helpMan(c, args[1:])
	case len(args) > 2:
		return Usagef("help takes a command, a flag, or both, got %d words", len(args))
	case len(args) == 2:
		cmd, ok := c.App.named(args[0])
		if !ok {
			return Usagef("there is no command %s%s", args[0], c.App.nearestCommand(args[0]))
		}
		return c.App.helpOnFlagOf(c.Stdout, cmd, args[1])
	case args[0] == "all":
		c.App.printHelp(c.Stdout, c.App.Main)
		return nil
	case args[0] == "-h" || args[0] == "--help" || args[0] == "-help":
		return c.Help("help")
	}
	if cmd, ok := c.App.named(args[0]); ok {
		c.App.printHelp(c.Stdout, cmd)
		return nil
	}
	return c.App.helpOnFlag(c.Stdout, args[0])
}

// Help prints the help of a command.
func (c *Console) Help(name string) error {
	cmd, _ := c.App.named(name)
	c.App.printHelp(c.Stdout, cmd)
	return nil
}

// helpFor returns the command line that prints the help for args, or that for a flag of
// theirs.
func (a *App) helpFor(args []string, flag string) string {
	words := "onnxquant help"
	if len(args) > 1 && args[0] == "help" {
		args = args[1:]
	}
	if len(args) > 0 {
		if cmd, ok := a.named(args[0]); ok && cmd.Name != "" && cmd.Name != "help" {
			words += " " + cmd.Name
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
func (a *App) nearestCommand(word string) string {
	var names []string
	for _, cmd := range a.Commands {
		names = append(names, cmd.Name)
	}
	if near, ok := nearest.Name(strings.ToLower(word), names); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// HelpUsage describes the flag --help of a command.
const HelpUsage = "print this help"

// HelpWidth is the width of the help, in columns.
const HelpWidth = 80

// PrintShortHelp prints the short help: the program's own beginning, then the commands.
func (a *App) PrintShortHelp(w io.Writer) {
	a.Short(w)
	var rare []string
	for _, cmd := range a.Commands {
		if cmd.Rare {
			rare = append(rare, cmd.Name)
			continue
		}
		fmt.Fprintf(w, "  %-11s %s\n", cmd.Name, cmd.Summary)
	}
	fmt.Fprintf(w, "  %s\n%s", strings.Join(rare, ", "), a.Footer)
}

// printHelp prints the help of a command with all its flags.
func (a *App) printHelp(w io.Writer, cmd Command) {
	for i, args := range cmd.Args {
		label := "Usage:"
		if i > 0 {
			label = "      "
		}
		fmt.Fprintln(w, strings.TrimRight(label+" "+cmd.Line(args), " "))
	}
	fmt.Fprintf(w, "\n%s\n\nFlags:\n%s", wrapText(cmd.Text), usages(cmd.Flags()))
	if cmd.Name == "" {
		fmt.Fprint(w, "\nCommands:\n")
		for _, cmd := range a.Commands {
			fmt.Fprintf(w, "  %-11s %s\n", cmd.Name, cmd.Summary)
		}
	}
	if cmd.After != "" {
		fmt.Fprintf(w, "\n%s\n", wrapText(cmd.After))
	}
}

// usages describes flags within helpWidth.
func usages(fs *pflag.FlagSet) string {
	fs.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "\n", " ") })
	return fs.FlagUsagesWrapped(HelpWidth)
}

// helpOnFlag describes a flag of any command, the conversion first. Commands with the same description
// are named together.
func (a *App) helpOnFlag(w io.Writer, name string) error {
	type meaning struct {
		cmd  Command
		in   []string
		text string
	}
	var meanings []*meaning
	var names, bears []string // bears: flags with a value of this name
	var value string
	for _, cmd := range a.All() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if v, ok := f.Value.(interface{ Values() []string }); ok && !slices.Contains(bears, "--"+f.Name) {
				if i := slices.IndexFunc(v.Values(), func(v string) bool { return strings.EqualFold(v, name) }); i >= 0 {
					bears, value = append(bears, "--"+f.Name), v.Values()[i]
				}
			}
		})
		names = append(append(names, cmd.Name), flagNames(cmd.Flags())...)
		flag := Lookup(cmd.Flags(), name)
		if flag == nil {
			continue
		}
		text := usage(flag)
		i := slices.IndexFunc(meanings, func(m *meaning) bool { return m.text == text })
		if i < 0 {
			i = len(meanings)
			meanings = append(meanings, &meaning{cmd: cmd, text: text})
		}
		meanings[i].in = append(meanings[i].in, cmd.Line(""))
	}
	switch {
	case len(meanings) > 0:
	case len(bears) > 0:
		fmt.Fprintf(w, "%s is a value of %s.\n\n", value, OneAnd(bears))
		return a.helpOnFlag(w, bears[0])
	default:
		word := PlainName(strings.TrimLeft(name, "-"))
		if text, ok := a.FlagHints[word]; ok {
			return Usagef("there is no command or flag %s; %s", name, text)
		}
		if near, ok := nearest.Name(word, names); ok {
			return Usagef("there is no command or flag %s; did you mean %s?", name, near)
		}
		return Usagef("there is no command or flag %s", name)
	}
	for i, m := range meanings {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, m.text)
		if len(m.in) > 1 || i > 0 || m.cmd.Name != "" {
			fmt.Fprintf(w, "\n%s\n", wrapText("Flag of "+OneAnd(m.in)+"."))
		}
		fmt.Fprintf(w, "\nExample: %s\n", a.ExampleOf(m.cmd, Lookup(m.cmd.Flags(), name)))
	}
	return nil
}

// helpOnFlagOf describes a flag of the command.
func (a *App) helpOnFlagOf(w io.Writer, cmd Command, name string) error {
	fs := cmd.Flags()
	flag := Lookup(fs, name)
	if flag == nil {
		return Usagef("%s has no flag %s%s", cmd.Line(""), name, a.nearestFlag(fs, strings.TrimLeft(name, "-")))
	}
	fmt.Fprintf(w, "%s\nExample: %s\n", usage(flag), a.ExampleOf(cmd, flag))
	return nil
}

// Lookup finds a flag by its long or short name, with or without dashes; nil if it does not exist.
func Lookup(fs *pflag.FlagSet, name string) *pflag.Flag {
	name = strings.TrimLeft(name, "-")
	if len(name) == 1 {
		return fs.ShorthandLookup(name)
	}
	return fs.Lookup(PlainName(name))
}

// usage describes one flag and its values.
func usage(f *pflag.Flag) string {
	fs := NewFlagSet()
	fs.AddFlag(f)
	text := usages(fs)
	v, ok := f.Value.(interface{ Values() []string })
	if !ok || aboutValue(f, v.Values()[0]) == "" {
		return text
	}
	const indent = 19
	for _, word := range v.Values() {
		lines := strings.ReplaceAll(wrap(aboutValue(f, word), HelpWidth-indent), "\n", "\n"+strings.Repeat(" ", indent))
		text += fmt.Sprintf("\n  %-*s%s", indent-2, word, lines)
	}
	return text + "\n"
}

// aboutValue describes a value of a flag, or is "".
func aboutValue(f *pflag.Flag, word string) string {
	if v, ok := f.Value.(interface{ About(word string) string }); ok {
		return v.About(word)
	}
	return ""
}

func flagNames(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) { names = append(append(names, f.Name), f.Annotations[otherNames]...) })
	return names
}

// wrapText breaks each paragraph of a text into lines of the help. Paragraphs that begin
// with a space stay as they are.
func wrapText(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrap(p, HelpWidth)
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

// ExampleOf is a command line with the flag.
func (a *App) ExampleOf(cmd Command, f *pflag.Flag) string {
	value, ok := a.Examples[cmd.Name+" "+f.Name]
	if !ok {
		value = a.Examples[f.Name]
	}
	words := "--" + f.Name
	if f.NoOptDefVal == "" || value != "" {
		words += " " + value
	}
	return strings.TrimSpace(cmd.Line(words + " " + cmd.ExampleArgs(f.Name)))
}

// ExampleArgs are the arguments of an example with the flag.
func (cmd Command) ExampleArgs(flag string) string {
	if cmd.ExampleFor != nil {
		if args := cmd.ExampleFor(flag); args != "" {
			return args
		}
	}
	return cmd.Example
}
