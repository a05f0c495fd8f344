package main

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onnxquant/internal/cli"
)

// complete returns what a word may become.
func complete(t *testing.T, shell string, at int, words ...string) []string {
	t.Helper()
	stdout := new(bytes.Buffer)
	args := append([]string{"__complete", shell, strconv.Itoa(at)}, words...)
	if status := program().Run(t.Context(), cli.ConsoleOn(stdout, io.Discard), args); status != 0 {
		t.Fatalf("status %d", status)
	}
	var list []string
	for line := range strings.Lines(stdout.String()) {
		word, _, _ := strings.Cut(line, "\t")
		list = append(list, word)
	}
	return list
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		shell string
		at    int
		words []string
		want  []string
	}{
		{"zsh", 0, []string{"in"}, []string{"inspect", ":files"}},
		{"zsh", 1, []string{"--style", "n"}, []string{"nbits"}},
		{"zsh", 1, []string{"--style"}, []string{"dq", "qdq", "nbits"}}, // an empty word is not passed
		{"zsh", 2, []string{"restyle", "--style"}, []string{"dq", "nbits"}},
		{"zsh", 0, []string{"--style=n"}, []string{"--style=nbits"}},
		{"bash", 2, []string{"--style", "=", "n"}, []string{"nbits"}},
		{"bash", 1, []string{"--style", "="}, []string{"dq", "qdq", "nbits"}},
		{"zsh", 1, []string{"-z", ""}, []string{":files"}}, // -z takes no value
		{"zsh", 1, []string{"-zf", "nv"}, []string{"nvfp4"}},
		{"zsh", 2, []string{"--", "--style", ""}, []string{":files"}},
		{"zsh", 0, []string{"--keep-io-types=t"}, []string{"--keep-io-types=true"}},
		{"zsh", 1, []string{"completion", "z"}, []string{"zsh"}},
		{"zsh", 1, []string{"--block", ""}, nil},
		{"zsh", 1, []string{"--bits", ""}, []string{"2", "4", "8"}},
		{"zsh", 1, []string{"--preset", "o"}, []string{"openvino", ":files"}},
		{"zsh", 1, []string{"--calib", "s"}, []string{"self", ":files"}},
		{"fish", 2, []string{"calibrate", "--data", ""}, []string{"self", ":files"}},
		{"bash", 4, []string{"analyze", "model.onnx", "--calib", "=", "s"}, []string{"self", ":files"}},
		{"zsh", 9, []string{"a"}, nil},
		{"zsh", -1, []string{"a"}, nil},
	} {
		if got := complete(t, c.shell, c.at, c.words...); !slices.Equal(got, c.want) {
			t.Errorf("%s %q at %d: %q, want %q", c.shell, c.words, c.at, got, c.want)
		}
	}
}

// Every flag whose value is one of some words has them completed.
func TestCompleteValues(t *testing.T) {
	for _, name := range []string{"format", "conv-format", "algorithm", "scale-rule", "scale-type", "target", "range", "style", "activations", "ops", "external-data", "preset", "calib", "bits"} {
		if len(complete(t, "zsh", 1, "--"+name)) < 2 {
			t.Errorf("--%s: no values", name)
		}
	}
}
