package main

import (
	"bytes"
	"cmp"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The manual pages say what the help says, and mandoc finds nothing wrong with them.
func TestManualPages(t *testing.T) {
	for _, cmd := range program().All() {
		page := bytes.NewBufferString(helpText(t, "help", "man", cmp.Or(cmd.Name, "convert")))
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page.String(), strings.ReplaceAll("--"+f.Name, "-", `\-`)) {
				t.Errorf("%s: --%s is not in the page", cmd.Line(""), f.Name)
			}
		})
		for line := range strings.Lines(page.String()) {
			if (line[0] == '.' || line[0] == '\'') && !strings.Contains(".TH .SH .B .BR .TP .PP .br .nf .fi ", strings.Fields(line)[0]+" ") {
				t.Errorf("%s: %q is no macro of man", cmd.Line(""), line)
			}
		}
		if _, err := exec.LookPath("mandoc"); err != nil {
			continue // the rest of this test is for systems that have it
		}
		lint := exec.Command("mandoc", "-T", "lint", "-W", "warning")
		lint.Stdin = page
		text, _ := lint.CombinedOutput()
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "missing date") { // a test has no commit
				t.Errorf("%s: %s", cmd.Line(""), line)
			}
		}
	}
}
