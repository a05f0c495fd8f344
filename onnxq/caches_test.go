package onnxq_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/calib"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Static activations leave the values of caches alone. Wrong scales are refused before any work.
func TestCacheScales(t *testing.T) {
	m := graphtext.Model(t, 18, "x:float[1,2,1,2] past:float[1,2,3,2]", "h = Cast<to=1>(past)\nr = Concat<axis=2>(h, x)\npresent = Cast<to=1>(r)\ny = Add(r, r)\nz = Add(x, x)", "y:float present:float z:float")
	path := modeltest.Write(t, &testmodels.Model{Proto: m})
	o := onnxq.Options{Activations: spec.Static, Ranges: &rules.Ranges{Tensors: map[string]calib.Range{}}}
	for _, name := range []string{"x", "past", "h", "r", "present", "y", "z"} {
		o.Ranges.Tensors[name] = calib.Range{Min: -1, Max: 1}
	}
	o.CacheScales = map[string][]float32{"past": {0.5, 1}}
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, path, out, o)
	made := modeltest.Read(t, out).Graph
	if got := graphtext.Print(made.Node, made.Initializer); strings.Count(got, " = QuantizeLinear") != 3 || !strings.Contains(got, "r = Concat<axis=2>(h, ") || !strings.Contains(got, "y = Add(r, r)") {
		t.Errorf("want codes of x, z and the cache, got\n%s", got)
	}
	for _, scales := range [][]float32{{}, {0}, {-1}, {float32(math.NaN())}, {float32(math.Inf(1))}, {1, 2, 3}} {
		o.CacheScales = map[string][]float32{"past": scales}
		if _, err := modeltest.Open(t, path).Plan(o); err == nil || !strings.Contains(err.Error(), `input "past": `) {
			t.Errorf("%v: %v", scales, err)
		}
	}
}
