package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// The short help fits on a screen of 30 lines and 80 columns, no help is wider.
func TestHelpFits(t *testing.T) {
	var short bytes.Buffer
	printShortHelp(&short)
	if lines := strings.Count(short.String(), "\n"); lines > 30 {
		t.Errorf("the short help has %d lines, want at most 30", lines)
	}
	checkWidth(t, "short", short.String())
	for _, cmd := range allCommands() {
		var b bytes.Buffer
		cmd.printHelp(&b)
		checkWidth(t, cmd.line(""), b.String())
	}
}

func checkWidth(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
			t.Errorf("%s: a line has %d columns: %s", what, n, line)
		}
	}
}

// Each flag has an example in its help, which its command parses.
func TestExamples(t *testing.T) {
	used := map[string]bool{}
	for _, cmd := range allCommands() {
		cmd.flags().VisitAll(func(f *pflag.Flag) {
			used[f.Name], used[cmd.name+" "+f.Name] = true, true
			line := cmd.exampleOf(f)
			words := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, cmd.line("")), "'", ""))
			fs := cmd.flags()
			if err := parseFlags(fs, words); err != nil {
				t.Errorf("%s: %v; has --%s a value in examples?", line, err, f.Name)
			} else if diff := cmp.Diff(strings.Fields(cmd.exampleFiles(f)), fs.Args()); diff != "" {
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
	fs := conversion().flags()
	for name, text := range flagHints {
		if lookup(fs, name) != nil {
			t.Errorf("there is a flag --%s, but also a hint", name)
		}
		if flag, _, _ := strings.Cut(text, " "); strings.HasPrefix(flag, "--") && lookup(fs, flag) == nil {
			t.Errorf("--%s: the hint names %s, which is no flag", name, flag)
		}
	}
}
