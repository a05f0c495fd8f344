package calibrate_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/calibrate"
	"onnxquant/testmodels"
)

// A measurement tells the shapes of values, of inputs too, and none of a value that was not made.
func TestMeasure(t *testing.T) {
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, "x:float[1,6] w:float[6,4]=0.1,0.2", "m = MatMul(x, w)\ny = Relu(m)", "y:float[1,4]")})
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := modeltest.WriteSamples(data, 3, 6); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"go", "auto"} {
		d := calibrate.New(path, calibrate.Options{Data: []string{data}, Engine: engine})
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		names, want := []string{"m", "x", "y"}, [][]int64{{1, 4}, {1, 6}, {1, 4}}
		if engine == "go" {
			names, want = append(names, "elsewhere"), append(want, nil)
		}
		m, err := d.Measure(t.Context(), path, names)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, m.Shapes); d != "" {
			t.Error(d)
		}
	}
}
