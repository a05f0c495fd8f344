package main

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/othertools"
)

// The short help fits on a screen of 32 lines and 80 columns, no help is wider.
func TestHelpFits(t *testing.T) {
	short := helpText(t, "help")
	if lines := strings.Count(short, "\n"); lines > 32 {
		t.Errorf("the short help has %d lines, want at most 32", lines)
	}
	checkWidth(t, "short", short)
	for _, cmd := range program().All() {
		checkWidth(t, cmd.Name, helpText(t, "help", cmp.Or(cmd.Name, "all")))
	}
}

// helpText is what a command prints on standard output.
func helpText(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := program().Run(t.Context(), cli.ConsoleOn(&stdout, &stderr), args); status != 0 {
		t.Fatalf("%q: status %d, %s", args, status, &stderr)
	}
	return stdout.String()
}

func checkWidth(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%s: a line has %d columns: %s", what, n, line)
		}
	}
}

// Each flag has an example in its help, which its command parses.
func TestExamples(t *testing.T) {
	used := map[string]bool{}
	for _, cmd := range program().All() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			used[f.Name], used[cmd.Name+" "+f.Name] = true, true
			line := program().ExampleOf(cmd, f)
			words := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, cmd.Line("")), "'", ""))
			fs := cmd.Flags()
			if err := program().Parse(fs, words); err != nil {
				t.Errorf("%s: %v; has --%s a value in examples?", line, err, f.Name)
			} else if diff := gocmp.Diff(strings.Fields(cmd.ExampleArgs(f.Name)), fs.Args()); diff != "" {
				t.Errorf("%s: arguments: %s; has --%s a value in examples?", line, diff, f.Name)
			}
		})
	}
	for name := range examples {
		if !used[name] {
			t.Errorf("there is an example of --%s, which no command has", name)
		}
	}
}

// A hint names a flag that exists, and is about a name that does not.
func TestHints(t *testing.T) {
	fs := conversion().Flags()
	for name := range othertools.Flags {
		if cli.Lookup(fs, name) != nil {
			t.Errorf("there is a flag --%s, but also a hint", name)
		}
	}
	for name := range othertools.Commands {
		if slices.ContainsFunc(program().All(), func(c cli.Command) bool { return c.Name == name }) {
			t.Errorf("there is a command %s, but also a hint", name)
		}
	}
	for _, hints := range []map[string]string{othertools.Flags, othertools.Formats, othertools.Commands} {
		for name, text := range hints {
			for _, flag := range regexp.MustCompile(`--[a-z][a-z0-9-]*`).FindAllString(text, -1) {
				if cli.Lookup(fs, flag) == nil {
					t.Errorf("%s: the hint names %s, which is no flag", name, flag)
				}
			}
		}
	}
	for name, operator := range othertools.Operators {
		if !slices.Contains(allOps(), operator) {
			t.Errorf("%s: %s is no operator that --ops takes", name, operator)
		}
	}
}

// Every command that takes data calls it --data, in its help and manual page, too.
func TestData(t *testing.T) {
	const taking = 7 // the conversion, analyze, bench, calibrate, report, verify
	n := 0
	for _, cmd := range program().All() {
		own := ""
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"calib", "data", "inputs"}, f.Name) {
				own = f.Name
			}
		})
		if own == "" {
			continue
		}
		n++
		for _, words := range [][]string{{"--data", "a", "--" + own + "=b"}, {"-data=a", "--data", "b"}} {
			fs := cmd.Flags()
			if err := program().ParseInOrder(fs, words); err != nil {
				t.Errorf("%s %q: %v", cmd.Line(""), words, err)
			} else if given := fs.Lookup(own).Annotations[cli.Given]; !slices.Equal(given, []string{"a", "b"}) || !fs.Changed("data") {
				t.Errorf("%s %q: --%s is %q", cmd.Line(""), words, own, given)
			}
		}
		for _, words := range [][]string{{"help", cmp.Or(cmd.Name, "all")}, {"help", "man", cmp.Or(cmd.Name, "convert")}} {
			if text := strings.ReplaceAll(helpText(t, words...), `\-`, "-"); !strings.Contains(text, "--data") {
				t.Errorf("%q does not say --data", words)
			}
		}
		if words := strings.Fields(cmd.Name + " --dat"); !slices.Equal(complete(t, "zsh", len(words)-1, words...), []string{"--data"}) {
			t.Errorf("%q is not completed", words)
		}
	}
	if n != taking {
		t.Errorf("%d commands take data, want %d", n, taking)
	}
}

// No example is wrong usage: it fails only because its files are missing.
func TestExamplesAreUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range program().All() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			line := program().ExampleOf(cmd, f)
			words := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "onnxquant "), "'", ""))
			text, err := os.CreateTemp(".", "stderr")
			if err != nil {
				t.Fatal(err)
			}
			defer text.Close()
			if program().Run(t.Context(), cli.NewConsole(text, text), words) != 2 {
				return
			}
			said, _ := os.ReadFile(text.Name())
			t.Errorf("%s: %s", line, said)
		})
	}
}
