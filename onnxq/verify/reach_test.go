package verify_test

import (
	"path/filepath"
	"testing"

	"onnxquant/calib"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/rules"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// While ranges are compared, progress goes to the end.
func TestReachReports(t *testing.T) {
	in, out := modeltest.Write(t, testmodels.MLP(1, 8, 8, 8)), filepath.Join(t.TempDir(), "out.onnx")
	ranges := map[string]calib.Range{}
	for _, name := range []string{"x", "m0", "a0", "h0", "m1", "y"} {
		ranges[name] = calib.Range{Min: -4, Max: 4}
	}
	modeltest.Convert(t, in, out, onnxq.Options{Activations: spec.Static, Ranges: &rules.Ranges{Tensors: ranges}})
	last, steps := 0.0, 0
	report, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go, Progress: func(stage string, done, total int64) {
		if stage != "comparing the ranges of activations" || total == 0 {
			return
		}
		share := float64(done) / float64(total)
		if share < last || share > 1 {
			t.Errorf("%d of %d after %g", done, total, last)
		}
		last, steps = share, steps+1
	}})
	if err != nil || len(report.Execution.Ranges) == 0 {
		t.Fatal(err, report)
	}
	if last != 1 || steps < 2 {
		t.Errorf("the end is %g after %d steps", last, steps)
	}
}
