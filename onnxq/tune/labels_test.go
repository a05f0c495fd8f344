package tune

import (
	"strings"
	"testing"

	"onnxquant/internal/run/execute"
)

// Labels that the float model misses are wrong; those of one class say little.
func TestCheckLabels(t *testing.T) {
	rows := &execute.Tensor{Dims: []int64{1, 4}}
	for _, test := range []struct {
		score             float64
		labels            []int64
		message, warnings string
	}{
		{0, []int64{0, 1, 2, 3}, "by chance it would be in 25 %", ""},
		{75, []int64{0, 1, 2, 3}, "", ""},
		{75, []int64{1, 1, 1, 3}, "", "one class for all rows has 75 %"},
		{100, []int64{1, 1, 1, 1}, "", "are the labels right?"},
	} {
		s := &search{opts: &Options{Labels: "y"}, result: &Result{Input: "in.onnx", Float: Quality{Score: &test.score}}, outputs: &outputs{}}
		s.outputs.choice.want = [][]*execute.Tensor{{rows}}
		for _, label := range test.labels {
			s.outputs.choice.labels = append(s.outputs.choice.labels, []int64{label})
		}
		err := s.checkLabels()
		if test.message == "" && err != nil || test.message != "" && (err == nil || !strings.Contains(err.Error(), test.message)) {
			t.Errorf("%v %v: %v, want %q", test.score, test.labels, err, test.message)
		}
		warnings := strings.Join(s.result.Warnings, "; ")
		if test.warnings == "" && warnings != "" || !strings.Contains(warnings, test.warnings) {
			t.Errorf("%v %v: warnings %q, want %q", test.score, test.labels, warnings, test.warnings)
		}
	}
}
