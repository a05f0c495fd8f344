package verify

import (
	"testing"

	"onnxquant/spec"
)

// Typed records say how codes were found, whatever flags there were; older ones have the flags alone.
func TestOriginOf(t *testing.T) {
	for _, c := range []struct {
		step spec.Step
		want origin
	}{
		{spec.Step{Options: "--bits 4"}, origin{}},
		{spec.Step{Options: "--bits 4 --calib x.npz"}, origin{fitted: true, data: true}},
		{spec.Step{Options: "--algorithm best"}, origin{fitted: true}},
		{spec.Step{Options: "--calib x.npz --algorithm awq"}, origin{fitted: true, data: true, scaled: true}},
		{spec.Step{Codes: []spec.StepCodes{{Algorithm: spec.RTN}}, Options: "--calib x.npz"}, origin{}},
		{spec.Step{Codes: []spec.StepCodes{{Algorithm: spec.RTN}, {Algorithm: spec.Best}}}, origin{fitted: true}},
		{spec.Step{Codes: []spec.StepCodes{{Algorithm: spec.GPTQ, Calibrated: true}}}, origin{fitted: true, data: true}},
	} {
		if got := originOf([]spec.Step{{Command: "convert"}, c.step}); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.step, got, c.want)
		}
	}
}
