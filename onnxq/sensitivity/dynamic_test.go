package sensitivity_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// A product whose activation has an outlier channel computes in float if its codes do more damage than the limit allows. The
// other product computes with codes.
func TestDynamic(t *testing.T) {
	path, data := outlierProducts(t)
	m := modeltest.Open(t, path)
	for _, c := range []struct {
		name    string
		options onnxq.Options
		limits  sensitivity.Limits
		decoded []string
		fails   bool
	}{
		{"default", onnxq.Options{}, sensitivity.Limits{}, []string{"w"}, false},
		{"a loose limit", onnxq.Options{}, sensitivity.Limits{SQNR: new(1.0)}, nil, false},
		{"a limit", onnxq.Options{}, sensitivity.Limits{SQNR: new(20.0)}, []string{"w"}, false},
		{"too hard", onnxq.Options{}, sensitivity.Limits{SQNR: new(200.0)}, nil, true},
		{"too hard, allowed", onnxq.Options{AllowFallback: true}, sensitivity.Limits{SQNR: new(200.0)}, []string{"w", "v"}, true},
		{"no distributions", onnxq.Options{}, sensitivity.Limits{KL: new(1.0)}, nil, true},
		{"excluded", onnxq.Options{Exclude: []string{"w"}}, sensitivity.Limits{}, nil, false},
	} {
		c.options.Activations = spec.Dynamic
		f, err := sensitivity.Dynamic(t.Context(), path, c.options, calibrate.Options{Data: []string{data}, Engine: "go"}, c.limits)
		if c.fails && !c.options.AllowFallback {
			if err == nil || c.limits.SQNR != nil && !errors.Is(err, sensitivity.ErrLimit) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if want := 2 - len(c.options.Exclude); f.Of != want || f.Samples != 9 || f.HeldOut != 3 || !slices.Equal(f.Decoded, c.decoded) || f.Met == c.fails || len(f.Warnings) > 0 != c.fails {
			t.Errorf("%s: %+v, warnings %q", c.name, f.DynamicActivations, f.Warnings)
		}
		if len(f.Decoded) > 0 && !(f.Loss.Damage < 0.1*f.All.Damage) {
			t.Errorf("%s: damage %g, all in codes %g", c.name, f.Loss.Damage, f.All.Damage)
		}
		p, err := m.Plan(f.Options)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.Tensors {
			if decoded := w.Block == 32; (w.Name == "w" || w.Name == "v") && w.Decision == onnxq.Quantize && decoded != slices.Contains(c.decoded, w.Name) {
				t.Errorf("%s: %s has blocks of %d", c.name, w.Name, w.Block)
			}
		}
		if text := fmt.Sprint(f.Summary()); !strings.Contains(text, "held-out samples") {
			t.Errorf("%s: summary %s", c.name, text)
		}
	}
}

// Settings of the user for a weight, and options, are not replaced.
func TestDynamicOptions(t *testing.T) {
	path, data := outlierProducts(t)
	given := onnxq.Options{Activations: spec.Dynamic, Ops: []string{"MatMul"}, Block: spec.PerTensor, Target: spec.Portable}
	f, err := sensitivity.FitActivations(t.Context(), path, given, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{SQNR: new(0.0)}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	o, warnings := f.Options()
	if o.Block != spec.PerTensor || o.Target != spec.Portable || len(o.AllowFallbackOf) > 0 || len(warnings) > 0 {
		t.Errorf("%+v, %q", o, warnings)
	}
	for _, c := range []struct {
		o    onnxq.Options
		fits bool
	}{
		{onnxq.Options{}, false}, {given, true}, {onnxq.Options{Activations: spec.Static, Algorithm: spec.GPTQ}, true},
		{onnxq.Options{Activations: spec.Dynamic, Algorithm: spec.GPTQ}, false}, {onnxq.Options{Activations: spec.Dynamic, Algorithm: spec.MSE}, true},
	} {
		if got := sensitivity.Fits(c.o); got != c.fits {
			t.Errorf("%+v: %t", c.o, got)
		}
	}
}

// outlierProducts writes a model of two products, and data. The first activation has an outlier channel that hardly counts.
func outlierProducts(t *testing.T) (path, data string) {
	t.Helper()
	const n = 64
	var w, c []string
	for i := range n * n {
		switch v := float64((i*37+i*i)%101)/101 - 0.5; {
		case i < n:
			w, c = append(w, fmt.Sprint(0.001*v)), append(c, "1")
		default:
			w = append(w, fmt.Sprint(v))
		}
	}
	c[0] = "300"
	values := fmt.Sprintf("x:float[1,%d] c:float[%d]=%s w:float[%d,%d]=%s v:float[%d,%d]=0.1,-0.3,0.7,-0.2,0.5,-0.6,0.25", n, n, strings.Join(c, ","), n, n, strings.Join(w, ","), n, n)
	nodes := `
		k = Mul(x, c)
		m = MatMul(k, w)
		y = MatMul(m, v)`
	path = modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, values, nodes, fmt.Sprintf("y:float[1,%d]", n))})
	data = filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, n)
	return path, data
}
