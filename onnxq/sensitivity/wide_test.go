package sensitivity_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/calib"
	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Where the target computes with both, an activation with an outlier channel has 16 bits instead of float.
func TestStaticWide(t *testing.T) {
	path, data := outlier(t)
	for _, c := range []struct {
		limits sensitivity.Limits
		typ    spec.ActivationType
		wide   bool
	}{
		{sensitivity.Limits{}, "", true}, {sensitivity.Limits{SQNR: new(25.0)}, "uint8", true}, {sensitivity.Limits{SQNR: new(1.0)}, "", false},
		{sensitivity.Limits{}, "uint16", false},
	} {
		opts := onnxq.Options{Activations: spec.Static, NoBalance: true, Target: spec.QNN, ActivationType: c.typ, Block: spec.PerChannel}
		f, err := sensitivity.Static(t.Context(), path, opts, calibrate.Options{Data: []string{data}, Engine: "go"}, c.limits)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Float) > 0 || !f.Met || slices.Contains(f.Wide, "k") != c.wide || c.wide != (f.Loss.Damage < f.All.Damage) {
			t.Errorf("limits %+v %s: %+v", c.limits, c.typ, f)
		}
		if !c.wide {
			continue
		}
		out := filepath.Join(t.TempDir(), "out.onnx")
		if _, err := onnxq.Convert(t.Context(), path, out, f.Options); err != nil {
			t.Fatal(err)
		}
		counts := map[dtype.DType]int{}
		for _, tensor := range modeltest.Read(t, out).Graph.Initializer {
			counts[dtype.DType(tensor.GetDataType())]++
		}
		if counts[dtype.Uint16] == 0 || counts[dtype.Uint8] == 0 {
			t.Errorf("types of tensors: %v", counts)
		}
		f.Options.Target = spec.ORT
		if _, err := modeltest.Open(t, path).Plan(f.Options); err == nil {
			t.Error("16 bits beside 8 are not for ONNX Runtime's CPU")
		}
	}
}

// An operator that QNN computes wrongly with 8 bits has 16.
func TestStaticWrongIn8(t *testing.T) {
	const values = "x:float[1,8] axis:int64[1]=1"
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, values, "h = Add(x, x)\nk = CumSum(h, axis)\ny = Add(k, k)", "y:float[1,8]")})
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 8)
	opts := onnxq.Options{Activations: spec.Static, Target: spec.QNN}
	f, err := sensitivity.Static(t.Context(), path, opts, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{SQNR: new(1.0)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := modeltest.Open(t, path).Plan(f.Options)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Wide, []string{"h"}) || slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "computes wrongly") }) {
		t.Errorf("wide: %q, warnings: %q", f.Wide, p.Warnings)
	}
}

// A warning says if the outputs are poor, unless the user limits the SQNR.
func TestStaticPoor(t *testing.T) {
	path, data := outlier(t)
	for _, c := range []struct {
		limits sensitivity.Limits
		poor   bool
	}{{sensitivity.Limits{Drop: new(1.0)}, true}, {sensitivity.Limits{SQNR: new(1.0)}, false}} {
		f, err := sensitivity.Static(t.Context(), path, onnxq.Options{Activations: spec.Static, NoBalance: true}, calibrate.Options{Data: []string{data}, Engine: "go", Method: calib.Method{Name: "percentile", Number: 60}, Scheme: calib.Scheme{Bits: 8}}, c.limits)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(f.Warnings, func(w string) bool { return strings.HasPrefix(w, "OUT is poor: output \"y\": SQNR ") }) != c.poor {
			t.Errorf("limits %+v: SQNR %g, %q", c.limits, *f.Loss.SQNR, f.Warnings)
		}
	}
}

// Weights have a scale for each channel where QNN takes that and the outputs lose less, unless the user says otherwise.
func TestStaticChannels(t *testing.T) {
	const values = "x:float[1,2,3,3] w:float[2,2,1,1]=100,50,0.3,-0.2 v:float[2,2,1,1]=0.01,1,0.02,-1"
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, values, "h = Conv(x, w)\nk = Tanh(h)\ny = Conv(k, v)", "y:float[1,2,3,3]")})
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 2, 3, 3)
	for _, block := range []int{0, spec.PerTensor} {
		opts := onnxq.Options{Activations: spec.Static, Target: spec.QNN, Block: block}
		f, err := sensitivity.Static(t.Context(), path, opts, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{SQNR: new(1.0)})
		if err != nil {
			t.Fatal(err)
		}
		if each := f.Options.Block == spec.PerChannel; each != (block == 0) || each != (f.PerTensor != nil) || each && f.PerChannel.Damage >= f.PerTensor.Damage {
			t.Errorf("block %d: %+v", block, f)
		}
	}
}
