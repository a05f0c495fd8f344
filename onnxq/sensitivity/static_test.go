package sensitivity_test

import (
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
		limit float64
		float bool
	}{{0, true}, {1e6, false}} {
		opts := onnxq.Options{Activations: spec.Static}
		f, err := sensitivity.Static(t.Context(), path, opts, calibrate.Options{Data: []string{data}, Engine: "go"}, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if f.Of != 5 || f.Samples != 9 || f.HeldOut != 3 || slices.Contains(f.Float, "k") != c.float || slices.Contains(f.Float, "x") {
			t.Errorf("limit %g: %+v", c.limit, f)
		}
		if c.float != (f.Damage < f.All) || f.Damage > f.Limit {
			t.Errorf("damage %g of %g, limit %g", f.Damage, f.All, f.Limit)
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
