package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"onnxquant/testmodels"
)

// In a real terminal of 30 columns the progress line never wraps, and it is gone at the end.
func TestProgressInTerminal(t *testing.T) {
	path := bigModel(t)
	for _, c := range []struct {
		name    string
		columns uint16
		args    []string
	}{
		{"convert", 30, []string{path, filepath.Join(t.TempDir(), "out.onnx")}},
		{"analyze", 30, []string{"analyze", path}},
		{"verify", 30, []string{"verify", path, path}},
		{"diff", 30, []string{"diff", path, path}},
		{"one column", 1, []string{"diff", path, path}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := inTerminal(t, c.columns, "TERM=xterm", c.args...)
			line, _, _ := strings.Cut(text, "\r\n")
			parts := strings.Split(line, "\r") // the last one is no progress
			drawn := 0
			for _, part := range parts[:len(parts)-1] {
				if n := utf8.RuneCountInString(part); n >= int(c.columns) {
					t.Errorf("%d columns in %q", n, part)
				}
				if strings.Contains(part, "%") {
					drawn++
				}
			}
			if drawn == 0 && c.columns > 5 && c.name != "verify" {
				t.Errorf("no progress in %q", text)
			}
			if strings.Contains(text, "\x1b") {
				t.Errorf("an escape sequence in %q", text)
			}
		})
	}
}

// A dumb terminal gets whole lines.
func TestProgressInDumbTerminal(t *testing.T) {
	text := inTerminal(t, 80, "TERM=dumb", "verify", bigModel(t), bigModel(t))
	if strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), "\r") {
		t.Errorf("a line is overwritten in %q", text)
	}
	if !strings.Contains(text, "comparing the weights\r\n") {
		t.Errorf("no line of progress in %q", text)
	}
}

// What is printed on a terminal breaks at its width, between words.
func TestFactsInTerminal(t *testing.T) {
	const columns = 70
	path := bigModel(t)
	text := allInTerminal(t, true, columns, "TERM=dumb", "verify", path, path)
	for line := range strings.Lines(strings.ReplaceAll(text, "\r", "")) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns in %q", n, line)
		}
	}
	if !strings.Contains(text, "cosine") {
		t.Errorf("no long line in %q", text)
	}
}

func bigModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.MLP(1, 512, 512, 512, 512).Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// inTerminal runs the command with its standard error in a terminal, and returns what that
// gets. Standard output is discarded.
func inTerminal(t *testing.T, columns uint16, env string, args ...string) string {
	t.Helper()
	return allInTerminal(t, false, columns, env, args...)
}

// allInTerminal may have standard output in the terminal, too.
func allInTerminal(t *testing.T, stdoutToo bool, columns uint16, env string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "onnxquant" // the test binary is the command under this name, see TestMain
	cmd.Env = append(os.Environ(), env)
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := pty.Setsize(ours, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = theirs
	if stdoutToo {
		cmd.Stdout = theirs
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var b bytes.Buffer
	done := make(chan struct{})
	go func() {
		io.Copy(&b, ours) // it ends with an error when the command does
		close(done)
	}()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	<-done
	return b.String()
}
