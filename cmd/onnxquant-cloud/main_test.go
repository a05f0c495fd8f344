package main

import (
	"strings"
	"testing"
)

func TestTold(t *testing.T) {
	version = "v1.2.3"
	defer func() { version = "" }()
	for _, test := range []struct {
		args        string
		status      int
		out, errors string
	}{
		{"--version", 0, "onnxquant-cloud v1.2.3 (go", ""},
		{"version", 0, "onnxquant-cloud v1.2.3 (go", ""},
		{"--help", 0, "Reads and writes objects for onnxquant", ""},
		{"-h", 0, "Usage:\n  onnxquant-cloud", ""},
		{"s3://bucket/key", 2, "", "onnxquant-cloud: onnxquant runs it"},
		{"--version more", 2, "", "it has --version and --help"},
	} {
		var out, errors strings.Builder
		status := told(strings.Fields(test.args), &out, &errors)
		if status != test.status || !strings.Contains(out.String(), test.out) || !strings.Contains(errors.String(), test.errors) || (test.out == "") != (out.Len() == 0) {
			t.Errorf("%s: %d, %q, %q", test.args, status, out.String(), errors.String())
		}
	}
}
