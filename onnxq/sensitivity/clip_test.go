package sensitivity_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// A range is clipped if the outputs hardly depend on the outliers, and not if they do.
func TestClip(t *testing.T) {
	const width = 2000
	for _, c := range []struct {
		name, weight string // of even inputs 4 numbers, of odd ones 4
		typ          spec.ActivationType
		clipped      bool
	}{
		{"outliers without effect", "0,0,0,0,1,-0.5,0.25,0.7", "", true},
		{"outliers that count", "1,-1,0.5,1,1,-0.5,0.25,0.7", "", false},
		{"16 bits", "0,0,0,0,1,-0.5,0.25,0.7", "uint16", false},
	} {
		path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 21, "x:float[1,2000] w:float[2000,4]="+c.weight, "y = MatMul(x, w)", "y:float[1,4]")})
		data := filepath.Join(t.TempDir(), "x.npy")
		writeNumbers(t, data, func(i int) float64 {
			if i%width == 0 {
				return 100
			}
			return math.Sin(float64(i * i))
		}, 12, width)
		options := onnxq.Options{Activations: spec.Static, ActivationType: c.typ}
		f, err := sensitivity.Static(t.Context(), path, options, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		most := f.Options.Ranges.Tensors["x"].Max
		if clipped := most < 50; clipped != c.clipped || clipped != (f.Clipped != nil) || clipped != strings.Contains(f.Method, "clipped") {
			t.Errorf("%s: range up to %g, %+v", c.name, most, f.StaticActivations)
		}
		if c.clipped && !(f.All.Damage < 0.1*f.MinMax.Damage) {
			t.Errorf("%s: damage %g without clipping, %g with it", c.name, f.MinMax.Damage, f.All.Damage)
		}
	}
}
