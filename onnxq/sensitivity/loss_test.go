package sensitivity_test

import (
	"encoding/json"
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/testmodels"
)

// The loss of outputs that are NaN or infinite is JSON, and keeps no limit.
func TestLossNotFinite(t *testing.T) {
	m := graphtext.Model(t, 18, "x:float[1,4]", "y = Relu(x)", "y:float[1,4]")
	loss, names := sensitivity.Losses(modeltest.Open(t, modeltest.Write(t, &testmodels.Model{Proto: m})))
	outputs := func(x ...float32) (all []*execute.Tensor) {
		for _, name := range names {
			o := execute.Made(dtype.Float32, []int64{1, 4}, x)
			o.Name = name
			all = append(all, o)
		}
		return all
	}
	want, low := outputs(0.5, 0.25, 0.125, 0.125), -100.0
	limits := sensitivity.Limits{SQNR: &low}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := loss([][]*execute.Tensor{want}, [][]*execute.Tensor{outputs(float32(v), 0.25, 0.125, 0.125)})
		raw, err := json.Marshal(x)
		if err != nil || x.Damage != math.MaxFloat64 || limits.Broken(x) == "" {
			t.Errorf("%g: %s, %v", v, raw, err)
		}
	}
	if x := loss([][]*execute.Tensor{want}, [][]*execute.Tensor{want}); x.Damage != 0 || limits.Broken(x) != "" {
		t.Errorf("%+v", x)
	}
}
