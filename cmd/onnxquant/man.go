package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// helpMan prints the manual page of the program, or that of a command.
func helpMan(c *console, args []string) error {
	cmd := conversion()
	switch {
	case len(args) > 1:
		return usagef("help man takes one command, got %d words", len(args))
	case len(args) == 1:
		named, ok := commandNamed(args[0])
		if !ok {
			return usagef("there is no command %s%s", args[0], nearestCommand(args[0]))
		}
		cmd = named
	}
	cmd.printMan(c.stdout)
	return nil
}

// printMan prints the manual page of a command, in the man macros of roff.
func (cmd command) printMan(w io.Writer) {
	title := strings.ReplaceAll(cmd.line(""), " ", "-")
	fmt.Fprintf(w, ".TH %s 1 %s %s\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roffArg(strings.ToUpper(title)), roffArg(buildDate()), roffArg("onnxquant "+buildVersion()), roff(title), roff(cmd.summary))
	for i, args := range cmd.args {
		if i > 0 {
			fmt.Fprintln(w, ".br")
		}
		fmt.Fprintf(w, ".B %s\n", roff(cmd.line("")))
		if args != "" {
			fmt.Fprintln(w, roff(args))
		}
	}
	fmt.Fprint(w, ".SH DESCRIPTION\n", roffText(cmd.text), ".SH OPTIONS\n")
	cmd.flags().VisitAll(func(f *pflag.Flag) {
		kind, text := pflag.UnquoteUsage(f)
		name := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + name
		}
		if kind != "" {
			name += ` \fI` + roff(kind) + `\fR`
		}
		fmt.Fprintf(w, ".TP\n%s\n%s\n", name, roff(strings.ReplaceAll(text, "\n", " ")))
		if f.NoOptDefVal == "" {
			fmt.Fprintf(w, ".br\nExample: %s\n", roff(cmd.exampleOf(f)))
		}
	})
	if cmd.name == "" {
		fmt.Fprintln(w, ".SH COMMANDS")
		for _, cmd := range commands() {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(cmd.name), roff(cmd.summary))
		}
	}
	if cmd.after != "" {
		fmt.Fprint(w, ".SH NOTES\n", roffText(cmd.after))
	}
	fmt.Fprintln(w, ".SH SEE ALSO")
	for _, other := range allCommands() {
		if other.name != cmd.name {
			fmt.Fprintf(w, ".BR %s (1)\n", roff(strings.ReplaceAll(other.line(""), " ", "-")))
		}
	}
}

// roffText writes paragraphs. Those that begin with a space stay as they are.
func roffText(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") {
			b.WriteString(".nf\n")
			for line := range strings.SplitSeq(p, "\n") {
				b.WriteString(roff(line) + "\n")
			}
			b.WriteString(".fi\n")
		} else {
			b.WriteString(roff(strings.Join(strings.Fields(p), " ")) + "\n")
		}
	}
	return b.String()
}

// roff escapes a text: a backslash, a hyphen that is copied into command lines, and what makes
// a line a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// roffArg quotes an argument of a request.
func roffArg(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
