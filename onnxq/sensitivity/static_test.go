package sensitivity_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// An activation with an outlier channel stays in float if its codes do more damage than the limit allows.
// The weight of its product still has codes.
func TestStatic(t *testing.T) {
	const (
		values = "x:float[1,8] c:float[8]=100,1,1,1,1,1,1,1 w:float[8,8]=0.001,0.001,-0.001,0.001,0.001,-0.001,0.001,0.001,-1.0,-0.17,0.67,-0.67,0.17,1.0,-0.33,0.5,0.17,1.0,-0.33,0.5,-0.83,0.0,0.83,-0.5,-0.83,0.0,0.83,-0.5,0.33,-1.0,-0.17,0.67,0.33,-1.0,-0.17,0.67,-0.67,0.17,1.0,-0.33,-0.67,0.17,1.0,-0.33,0.5,-0.83,0.0,0.83,0.5,-0.83,0.0,0.83,-0.5,0.33,-1.0,-0.17,-0.5,0.33,-1.0,-0.17,0.67,-0.67,0.17,1.0"
		nodes  = `
			h = Add(x, x)
			k = Mul(h, c)
			m = MatMul(k, w)
			y = Add(m, m)`
	)
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, values, nodes, "y:float[1,8]")})
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 8)
	m := modeltest.Open(t, path)
	for _, c := range []struct {
		limits sensitivity.Limits
		float  bool
		fails  bool
	}{
		{sensitivity.Limits{}, true, false}, {sensitivity.Limits{SQNR: new(1.0)}, false, false}, {sensitivity.Limits{SQNR: new(25.0)}, true, false},
		{sensitivity.Limits{SQNR: new(200.0)}, true, true}, {sensitivity.Limits{Drop: new(1.0)}, false, false}, {sensitivity.Limits{KL: new(1.0)}, false, true},
	} {
		opts := onnxq.Options{Activations: spec.Static}
		f, err := sensitivity.Static(t.Context(), path, opts, calibrate.Options{Data: []string{data}, Engine: "go"}, c.limits)
		if c.fails {
			if err == nil || c.limits.SQNR != nil && !errors.Is(err, sensitivity.ErrLimit) {
				t.Errorf("limits %+v: %v", c.limits, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Of != 5 || f.Samples != 9 || f.HeldOut != 3 || slices.Contains(f.Float, "k") != c.float || slices.Contains(f.Float, "x") {
			t.Errorf("limits %+v: %+v", c.limits, f)
		}
		if c.float != (f.Loss.Damage < f.All.Damage) || !f.Met {
			t.Errorf("damage %g of %g, limit %g", f.Loss.Damage, f.All.Damage, f.Limit)
		}
		p, err := m.Plan(f.Options)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Name == "w" })
		if p.Tensors[i].Decision != onnxq.Quantize {
			t.Errorf("w: %+v", p.Tensors[i])
		}
	}
}
