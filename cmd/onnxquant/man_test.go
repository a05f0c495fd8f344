package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// The manual pages say what the help says, and mandoc finds nothing wrong with them.
func TestManualPages(t *testing.T) {
	for _, cmd := range allCommands() {
		var page bytes.Buffer
		cmd.printMan(&page)
		for _, name := range flagNames(cmd.flags()) {
			if !strings.Contains(page.String(), roff("--"+name)) {
				t.Errorf("%s: --%s is not in the page", cmd.line(""), name)
			}
		}
		for line := range strings.Lines(page.String()) {
			if (line[0] == '.' || line[0] == '\'') && !strings.Contains(".TH .SH .B .BR .TP .PP .br .nf .fi ", strings.Fields(line)[0]+" ") {
				t.Errorf("%s: %q is no macro of man", cmd.line(""), line)
			}
		}
		if _, err := exec.LookPath("mandoc"); err != nil {
			continue // the rest of this test is for systems that have it
		}
		lint := exec.Command("mandoc", "-T", "lint", "-W", "warning")
		lint.Stdin = &page
		text, _ := lint.CombinedOutput()
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "missing date") { // a test has no commit
				t.Errorf("%s: %s", cmd.line(""), line)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		".x": `\&.x`, "'x": `\&'x`, `a\b`: `a\eb`, "--bits": `\-\-bits`,
	} {
		if got := roff(text); got != want {
			t.Errorf("roff(%q) = %q, want %q", text, got, want)
		}
	}
}
