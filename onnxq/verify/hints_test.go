package verify

import (
	"strings"
	"testing"

	"onnxquant/onnxq/compare"
	"onnxquant/spec"
)

// With poor outputs, one coarse scale for a whole weight is named as what to mend first.
func TestActivationHint(t *testing.T) {
	for _, c := range []struct {
		weight compare.WeightMatch
		want   bool
	}{
		{compare.WeightMatch{CodeType: "INT8", Block: spec.PerTensor, SQNR: 9.4}, true},
		{compare.WeightMatch{CodeType: "INT8", Block: spec.PerTensor, SQNR: 41}, false},
		{compare.WeightMatch{CodeType: "INT8", Block: spec.PerChannel, SQNR: 9.4}, false},
	} {
		v := &verifier{opts: Options{Inputs: []string{"x.npz"}}, report: &Report{Poor: []string{"y"}, Weights: []compare.WeightMatch{c.weight}}}
		v.report.Structure.Activations = map[string]int{"uint8": 1}
		hint := v.activationHint()
		if !strings.Contains(hint, "fewer activations") || strings.Contains(hint, "--block -1") != c.want || strings.Contains(hint, "--coarse") {
			t.Errorf("%+v: %q", c.weight, hint)
		}
		v.record = []spec.Step{{Command: "convert", Options: "--activations static --coarse-activations"}}
		if hint := v.activationHint(); !strings.Contains(hint, "or without --coarse-activations") {
			t.Errorf("OUT has that flag: %q", hint)
		}
	}
}

// A model that loses far more in ONNX Runtime than by exact sums may need codes of 7 bits.
func TestLosesInSums(t *testing.T) {
	const options = "--activations dynamic"
	for _, c := range []struct {
		options, codes string
		itself         float64 // SQNR in ONNX Runtime
		want           bool
	}{
		{options, "INT8", -8, true},
		{options, "INT8", 40, false},
		{options, "UINT8", -8, false},
		{options + " --reduce-range", "INT8", -8, false},
		{"", "INT8", -8, false},
	} {
		v := &verifier{in: "in.onnx", out: "out.onnx", record: []spec.Step{{Command: "convert", Options: c.options}}, report: &Report{}}
		v.report.Execution = Execution{Outputs: []Output{{SQNR: 42}}, QuantizedRun: &QuantizedRun{Outputs: []Output{{SQNR: c.itself}}}}
		if got := v.losesInSums([]compare.WeightMatch{{CodeType: c.codes, Form: "MatMulInteger"}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	v := &verifier{record: []spec.Step{{Command: "convert", Options: options}}}
	if got := v.ownFlags("--reduce-range"); got != options+" --reduce-range" {
		t.Error(got)
	}
}
