package sensitivity_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
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
	path, data := outlier(t)
	m := modeltest.Open(t, path)
	for _, c := range []struct {
		limits sensitivity.Limits
		float  bool
		fails  bool
	}{
		{sensitivity.Limits{}, true, false}, {sensitivity.Limits{SQNR: new(1.0)}, false, false}, {sensitivity.Limits{SQNR: new(25.0)}, true, false},
		{sensitivity.Limits{SQNR: new(200.0)}, true, true}, {sensitivity.Limits{Drop: new(1.0)}, false, false}, {sensitivity.Limits{KL: new(1.0)}, false, true},
	} {
		opts := onnxq.Options{Activations: spec.Static, NoBalance: true}
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
		if f.Of != 1 || f.Samples != 9 || f.HeldOut != 3 || slices.Contains(f.Float, "k") != c.float || slices.Contains(f.Float, "x") {
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

// The activation with outliers is found in old opsets, too: 8 has no Where and no QuantizeLinear, 9 has no QuantizeLinear.
func TestStaticOldOpsets(t *testing.T) {
	for _, opset := range []int64{8, 9, 10} {
		path, data := outlierOf(t, opset)
		f, err := sensitivity.Static(t.Context(), path, onnxq.Options{Activations: spec.Static, NoBalance: true}, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{})
		if err != nil {
			t.Fatalf("opset %d: %v", opset, err)
		}
		if !slices.Contains(f.Float, "k") || !f.Met {
			t.Errorf("opset %d: %+v", opset, f)
		}
	}
}

// With factors of channels, the outlier does no damage, and the converted model has them.
func TestStaticBalance(t *testing.T) {
	path, data := outlier(t)
	f, err := sensitivity.Static(t.Context(), path, onnxq.Options{Activations: spec.Static}, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if b := f.Balance; b.Places != 1 || b.Of != 1 || b.After.Damage > 0.1*b.Before.Damage || f.All.Damage != b.After.Damage || len(f.Float) > 0 || len(f.Options.Balance) != 1 {
		t.Errorf("%+v", f)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if _, err := onnxq.Convert(t.Context(), path, out, f.Options); err != nil {
		t.Fatal(err)
	}
	if got := balance.Recorded(modeltest.Read(t, out)); len(got["k"]) != 8 || got["k"][0] < balance.PerOctave {
		t.Errorf("record %v", got)
	}
}

// Values inside of a normalization that is written out are named if they would have codes.
func TestStaticInner(t *testing.T) {
	const values = "x:float[1,8] e:float=0.00001 two:float=2.0 w:float[8,8]=1.0,-0.5,0.25"
	nodes := strings.ReplaceAll("m = ReduceMean<axes=[-1]>(x); d = Sub(x, m); q = Pow(d, two); v = ReduceMean<axes=[-1]>(q); a = Add(v, e); o = Sqrt(a); n = Div(d, o); y = MatMul(n, w)", "; ", "\n")
	path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13, values, nodes, "y:float[1,8]")})
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 8)
	for _, c := range []struct {
		ops  []string
		want string
	}{{nil, "v a"}, {[]string{"MatMul"}, ""}} {
		o := onnxq.Options{Activations: spec.Static, Format: spec.Int8, NoBalance: true, Ops: c.ops, AllowFallback: true} // 8 bits on each processor
		f, err := sensitivity.Static(t.Context(), path, o, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{SQNR: new(0.0)})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.Inner, " "); got != c.want || !f.Options.FloatInner {
			t.Errorf("%v: %q, want %q", c.ops, got, c.want)
		}
	}
}

// outlier writes a model of which an activation has a channel with outliers, and samples.
func outlier(t *testing.T) (path, data string) { return outlierOf(t, 13) }

func outlierOf(t *testing.T, opset int64) (path, data string) {
	t.Helper()
	const (
		values = "x:float[1,8] c:float[8]=100,1,1,1,1,1,1,1 w:float[8,8]=0.001,0.001,-0.001,0.001,0.001,-0.001,0.001,0.001,-1.0,-0.17,0.67,-0.67,0.17,1.0,-0.33,0.5,0.17,1.0,-0.33,0.5,-0.83,0.0,0.83,-0.5,-0.83,0.0,0.83,-0.5,0.33,-1.0,-0.17,0.67,0.33,-1.0,-0.17,0.67,-0.67,0.17,1.0,-0.33,-0.67,0.17,1.0,-0.33,0.5,-0.83,0.0,0.83,0.5,-0.83,0.0,0.83,-0.5,0.33,-1.0,-0.17,-0.5,0.33,-1.0,-0.17,0.67,-0.67,0.17,1.0"
		nodes  = `
			h = Add(x, x)
			k = Mul(h, c)
			m = MatMul(k, w)
			y = Add(m, m)`
	)
	path = modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, opset, values, nodes, "y:float[1,8]")})
	data = filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 8)
	return path, data
}

// Activations in the branch that runs have codes, those in the other one have no ranges; its weight is decoded. Errors of
// states add up.
func TestStaticBodies(t *testing.T) {
	built, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	intoBranches(built.Proto.Graph)
	path := modeltest.Write(t, built)
	data := filepath.Join(t.TempDir(), "x.npy")
	writeArray(t, data, 12, 64)
	f, err := sensitivity.Static(t.Context(), path, onnxq.Options{Activations: spec.Static, NoBalance: true}, calibrate.Options{Data: []string{data}, Engine: "go"}, sensitivity.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Options.Ranges.Of("then_branch/then_branch_y"); !ok || !f.Options.Ranges.Lacks("else_branch/else_branch_y") || !f.Met {
		t.Fatalf("%+v", f)
	}
	p, err := modeltest.Open(t, path).Plan(f.Options)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.Tensors {
		block := map[string]int{"then_branch/w0": spec.PerChannel, "else_branch/w0": 32}[w.Name]
		if block != 0 && (w.Decision != onnxq.Quantize || w.Block != block) {
			t.Errorf("%+v", w)
		}
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if _, err := p.Convert(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	graph.WalkGraphs(modeltest.Open(t, out).Graph().File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			if n.GetOpType() == "QuantizeLinear" {
				found[g.GetName()]++
			}
		}
	})
	if found["then_branch"] != 1 || found["else_branch"] != 0 {
		t.Errorf("pairs by graph: %v", found)
	}
}
