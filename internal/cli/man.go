package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// helpMan prints the manual page of the program or of a command.
func helpMan(c *Console, args []string) error {
	cmd := c.App.Main
	switch {
	case len(args) > 1:
		return Usagef("help man takes one command, got %d words", len(args))
	case len(args) == 1:
		named, ok := c.App.named(args[0])
		if !ok {
			return Usagef("there is no command %s%s", args[0], c.App.nearestCommand(args[0]))
		}
		cmd = named
	}
	c.App.printMan(c.Stdout, cmd)
	return nil
}

// printMan prints the manual page of a command, in the man macros of roff.
func (a *App) printMan(w io.Writer, cmd Command) {
	title := strings.ReplaceAll(cmd.Line(""), " ", "-")
	fmt.Fprintf(w, ".TH %s 1 %s %s\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roffArg(strings.ToUpper(title)), roffArg(a.Date), roffArg("onnxquant "+a.Version), roff(title), roff(cmd.Summary))
	for i, args := range cmd.Args {
		if i > 0 {
			fmt.Fprintln(w, ".br")
		}
		fmt.Fprintf(w, ".B %s\n", roff(cmd.Line("")))
		if args != "" {
			fmt.Fprintln(w, roff(args))
		}
	}
	fmt.Fprint(w, ".SH DESCRIPTION\n", roffText(cmd.Text), ".SH OPTIONS\n")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		kind, text := pflag.UnquoteUsage(f)
		name := `\fB` + roff("--"+f.Name) + `\fR`
		for _, other := range f.Annotations[otherNames] {
			name += `, \fB` + roff("--"+other) + `\fR`
		}
		if f.Shorthand != "" {
			name = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + name
		}
		if kind != "" {
			name += ` \fI` + roff(kind) + `\fR`
		}
		fmt.Fprintf(w, ".TP\n%s\n%s\n", name, roff(strings.ReplaceAll(text, "\n", " ")))
		if f.NoOptDefVal == "" {
			fmt.Fprintf(w, ".br\nExample: %s\n", roff(a.ExampleOf(cmd, f)))
		}
	})
	if cmd.Name == "" {
		fmt.Fprintln(w, ".SH COMMANDS")
		for _, cmd := range a.Commands {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(cmd.Name), roff(cmd.Summary))
		}
	}
	if cmd.After != "" {
		fmt.Fprint(w, ".SH NOTES\n", roffText(cmd.After))
	}
	fmt.Fprintln(w, ".SH SEE ALSO")
	for _, other := range a.All() {
		if other.Name != cmd.Name {
			fmt.Fprintf(w, ".BR %s (1)\n", roff(strings.ReplaceAll(other.Line(""), " ", "-")))
		}
	}
}

// roffText writes paragraphs. Paragraphs that begin with a space are written unchanged.
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

// roff escapes text: backslashes, hyphens (so that they can be copied into command lines), and
// characters that would make a line a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// roffArg quotes an argument of a request.
func roffArg(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
