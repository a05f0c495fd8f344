package onnxq_test

import (
	"fmt"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// A warning names activations whose range holds nothing but 0.
func TestEmptyRange(t *testing.T) {
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 32, 32)}, modeltest.Nodes{
		modeltest.Node("MatMul", "h", "x w"), modeltest.Node("MatMul", "y", "h w"),
	})))
	for largest, want := range map[string]string{"0": `nothing but 0, so that codes make all its values 0: "h"`, "1e-40": `: "h"`, "1e-6": ""} {
		ranges, err := rules.ParseRanges(fmt.Appendf(nil, `{"version": 1, "tensors": {"x": {"min": -1, "max": 1}, "h": {"min": 0, "max": %s}, "y": {"min": -1, "max": 1}}}`, largest))
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Plan(onnxq.Options{Activations: spec.Static, Ranges: ranges})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(p.Warnings, "\n")
		if strings.Contains(text, "nothing but 0") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%s: warnings %q, want %q", largest, text, want)
		}
	}
}
