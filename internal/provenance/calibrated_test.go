package provenance_test

import (
	"testing"

	"onnxquant/internal/provenance"
	"onnxquant/spec"
)

// What was done to the weights counts, not what was asked for; older records have the flags alone.
func TestCalibrated(t *testing.T) {
	for _, c := range []struct {
		step spec.Step
		want bool
	}{
		{spec.Step{Options: "--bits 4"}, false},
		{spec.Step{Options: "--bits 4 --calib x.npz"}, true},
		{spec.Step{Options: "--calib x.npz", Codes: []spec.StepCodes{{Algorithm: spec.RTN}}}, false},
		{spec.Step{Codes: []spec.StepCodes{{Algorithm: spec.RTN}, {Algorithm: spec.GPTQ, Calibrated: true}}}, true},
	} {
		if got := provenance.Calibrated(c.step); got != c.want {
			t.Errorf("%+v: %v", c.step, got)
		}
	}
}
