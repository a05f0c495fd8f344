package verify

import (
	"strings"
	"testing"

	"onnxquant/spec"
)

// Weights of other files than IN are no mistake of the conversion.
func TestWeightsHint(t *testing.T) {
	for options, want := range map[string]bool{"--block 32 --weights-from a.gguf": true, "--block 32": false} {
		v := &verifier{record: []spec.Step{{Command: "convert", Options: options}}, report: &Report{Failed: map[Check]int{CheckWeights: 1}}}
		if got := v.weightsHint(); strings.Contains(got, "--weights-from FILE IN FLOAT") != want {
			t.Errorf("%s: %q", options, got)
		}
		if v.report.Failed = nil; v.weightsHint() != "" {
			t.Errorf("%s: a hint without a failure", options)
		}
	}
}
