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
