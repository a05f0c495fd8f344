package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort/wire"
	"onnxquant/internal/testing/modeltest"
)

func node(op string, ts, dur int) string {
	return fmt.Sprintf(`{"cat" : "Node","pid" :1,"tid" :1,"dur" :%d,"ts" :%d,"ph" : "X","name" :"n\"_kernel_time","args" : {"op_name" : "%s","input_type_shape" : [{"float":[1,2]}],"thread_scheduling_stats" : {"main_thread": {"core": -1}}}},`, dur, ts, op)
}

func session(name string, ts, dur int) string {
	return fmt.Sprintf(`{"cat" : "Session","pid" :1,"tid" :1,"dur" :%d,"ts" :%d,"ph" : "X","name" :"%s","args" : {}},`, dur, ts, name)
}

// Runs in front of the last ones do not count. The time of a loop is without that of its body.
// Of several runs, the fastest quarter counts.
func TestProfile(t *testing.T) {
	text := strings.Join([]string{
		"[",
		session("session_initialization", 0, 900),
		node("Conv", 1000, 5000), session("model_run", 1000, 6000),
		node("Conv", 10000, 100), node("DequantizeLinear", 10100, 20), node("Identity", 10130, 10), node("MatMul", 10140, 30), node("Loop", 10125, 60),
		node("MatMul", 10185, 0),
		`{"cat" : "Node","dur" :7,"ts" :10190,"name" :"n_fence_before","args" : {"op_name" : "Conv"}},`,
		`{"cat" : "Node","dur" :-7,"ts" :10190,"name" :"n_kernel_time","args" : {"op_name" : "Conv"}},`,
		`{"cat" : "Node","dur" :7,"ts" :10190,"name" :"a "quoted" name_kernel_time","args" : {"op_name" : "Conv"}},`,
		strings.Repeat("x", 2*longestEvent),
		session("model_run", 10000, 200),
		node("Conv", 15000, 3000), strings.Repeat(session("model_run", 15000, 3000)+"\n", 6),
		node("Conv", 20000, 300), session("SequentialExecutor::Execute", 20000, 300), session("model_run", 20000, 400),
		node("Conv", 30000, 300), // a run that did not end
		"]",
	}, "\n")
	for _, ending := range []string{"\n", "\r\n"} {
		p, err := readProfile(strings.NewReader(strings.ReplaceAll(text, "\n", ending)), 8)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%d %.3f %.3f %.3f", p.Runs, p.Run, p.Dequantize.Time, p.Between)
		for _, op := range p.Operators {
			got += fmt.Sprintf("; %s %.1f %.3f %.3f", op.Name, op.Nodes, op.Time, op.Share)
		}
		if want := "2 0.300 0.010 0.060; Conv 1.0 0.200 0.667; MatMul 1.0 0.015 0.050; Loop 0.5 0.010 0.033; Identity 0.5 0.005 0.017"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// The names of operators come from models: their number is bounded.
func TestManyOperators(t *testing.T) {
	var b strings.Builder
	for i := range mostOperators + 100 {
		b.WriteString(node(fmt.Sprint("Op", i), 10*i, 5) + "\n")
	}
	b.WriteString(session("model_run", 0, 10*(mostOperators+100)))
	p, err := readProfile(strings.NewReader(b.String()), 1)
	if err != nil || len(p.Operators) != mostOperators+1 || p.Operators[0].Name != "others" || p.Operators[0].Nodes != 100 {
		t.Errorf("%d operators, %v", len(p.Operators), err)
	}
}

func TestNoProfile(t *testing.T) {
	for _, text := range []string{"", "[\n]\n", "no profile", node("Conv", 0, 1)} {
		if p, err := readProfile(strings.NewReader(text), 1); err == nil || !strings.Contains(err.Error(), "no complete run") {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add(node("Conv", 0, 5)+"\n"+node("Loop", 0, 9)+"\n"+session("model_run", 0, 10), 1)
	f.Fuzz(func(t *testing.T, text string, runs int) {
		p, err := readProfile(strings.NewReader(text), max(runs, 1))
		if err != nil {
			return
		}
		for _, op := range append(p.Operators, p.Dequantize) {
			if op.Time < 0 || math.IsNaN(op.Time) || math.IsNaN(op.Share) {
				t.Errorf("%+v", op)
			}
		}
	})
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		q    float64
		want float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0.9, 3}, {[]float64{1, 2}, 0.5, 1.5}, {[]float64{1, 2, 3, 4, 5}, 0.5, 3}, {[]float64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, 0.9, 90}, {[]float64{1, 2}, 1, 2}} {
		if got := quantile(c.x, c.q); got != c.want {
			t.Errorf("quantile %g of %v: %g", c.q, c.x, got)
		}
	}
}

// turns makes a series of turns of three runs with these p50s.
func turns(p50s ...float64) (s series) {
	for _, p := range p50s {
		ms := time.Duration(p * float64(time.Millisecond))
		s.add(wire.Timing{Runs: []time.Duration{2 * ms, ms / 2, ms}, CPU: 6 * ms})
	}
	return s
}

// Figures settle when the p50s and the ratios agree. A disturbed turn does not keep them from it; a drift
// that all models share does.
func TestUncertainty(t *testing.T) {
	quiet := []float64{10, 10.1, 9.9, 10, 10.05, 9.95, 10, 10}
	noisy := []float64{10, 14, 8, 10, 15, 7, 12, 9}
	disturbed := slices.Concat(quiet[:7], []float64{100})
	for name, c := range map[string]struct {
		all     []series
		settled bool
	}{
		"one":        {[]series{turns(quiet...)}, true},
		"same":       {[]series{turns(quiet...), turns(quiet...)}, true},
		"noisy":      {[]series{turns(quiet...), turns(noisy...)}, false},
		"first":      {[]series{turns(noisy...), turns(quiet...)}, false},
		"disturbed":  {[]series{turns(quiet...), turns(disturbed...)}, true},
		"drift":      {[]series{turns(noisy...), turns(noisy...)}, false},
		"one turn":   {[]series{turns(10)}, false},
		"no time":    {[]series{turns(0, 0, 0)}, false},
		"zero first": {[]series{turns(0, 0), turns(1, 1)}, false},
	} {
		if u := uncertainty(c.all); u <= settledAt != c.settled || u < 0 || u > 1 {
			t.Errorf("%s: %g", name, u)
		}
	}
	if u := standardError(noisy); math.Abs(u-1.2533*1.4826*2/math.Sqrt(8)/10) > 1e-9 {
		t.Errorf("the standard error is %g", u)
	}
}

func TestFill(t *testing.T) {
	first, second := turns(10, 10, 20), turns(20, 20, 40)
	var m Model
	second.fill(&m, &first)
	if m.Runs != 9 || m.P50 != 20 || m.Ratio != 2 || m.CPU != 40 || m.CPURatio != 2 || math.Abs(m.P90-48) > 1e-9 {
		t.Errorf("%+v", m)
	}
}

func TestString(t *testing.T) {
	r := &Report{
		Runtime: "ONNX Runtime 1.2", Inputs: []Input{{"x", "FLOAT", []int64{1, 3}}}, Random: true, Sizes: "n=1", Rounds: 9, Seconds: 2.5, Uncertainty: 0.004, Settled: true,
		Models: []Model{
			{Path: "a.onnx", P50: 100, P90: 120, CPU: 200, Ratio: 1, CPURatio: 1, Load: 5, PeakMemory: 64 << 20, Bytes: 1 << 20, Profile: &Profile{Run: 100, Operators: []Operator{{"Conv", 2, 90, 0.9}}, Between: 10}},
			{Path: "b\x1b.onnx", P50: 50, P90: 60, CPU: 0.5, Ratio: 0.5, Load: 5, Bytes: 300, Profile: &Profile{Run: 60, Operators: []Operator{}, Dequantize: Operator{dequantize, 1, 15, 0.25}, Between: 45}},
		},
	}
	for i := range 10 {
		op := Operator{fmt.Sprint("Op", i), 1, 1, 0.01}
		r.Models[1].Profile.Operators = append(r.Models[1].Profile.Operators, op)
	}
	want := `   MODEL       P50      P90      CPU       RATIO  CPU RATIO  LOAD     MEMORY  SIZE
1  a.onnx      100 ms   120 ms   200 ms    1.00   1.00       5.00 ms  64 MiB  1.0 MiB
2  b\x1b.onnx  50.0 ms  60.0 ms  0.500 ms  0.50   -          5.00 ms  -       300 B

OPERATOR           1             2
Conv               90.0 ms 90 %  -
Op0                -             1.00 ms 2 %
Op1                -             1.00 ms 2 %
Op2                -             1.00 ms 2 %
Op3                -             1.00 ms 2 %
Op4                -             1.00 ms 2 %
Op5                -             1.00 ms 2 %
Op6                -             1.00 ms 2 %
3 others           -             3.00 ms 5 %
DequantizeLinear   -             15.0 ms 25 %
between operators  10.0 ms 10 %  45.0 ms 75 %
run with profile   100 ms 100 %  60.0 ms 100 %

runtime    ONNX Runtime 1.2, threads as ONNX Runtime chooses
inputs     x 1x3 FLOAT; random, of n=1
measured   9 rounds in 2.5 s; settled, p50 and ratio ± 0.4 %
`
	if got := r.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := pathText(strings.Repeat("x", 100) + "/model.onnx"); len([]rune(got)) != 57 || !strings.HasSuffix(got, "xx/model.onnx") {
		t.Error(got)
	}
}

// Models must take the same inputs.
func TestTakes(t *testing.T) {
	info := func(name string, typ dtype.DType, dims ...int64) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range dims {
			dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "n"}}
			if d >= 0 {
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}
			}
			shape.Dim = append(shape.Dim, dim)
		}
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(typ)), Shape: shape}}}}
	}
	values := []*execute.Tensor{{Name: "x", DType: dtype.Float32, Dims: []int64{1, 3}}, {Name: "i", DType: dtype.Int64, Dims: []int64{}}}
	index := info("i", dtype.Int64)
	for _, c := range []struct {
		infos []*onnxpb.ValueInfoProto
		want  string
	}{
		{[]*onnxpb.ValueInfoProto{info("x", dtype.Float32, 1, 3), index}, ""},
		{[]*onnxpb.ValueInfoProto{index, info("x", dtype.Float32, -1, 3)}, ""},
		{[]*onnxpb.ValueInfoProto{info("x", dtype.Float32, 2, 3), index}, `input "x" does not take the shape 1x3`},
		{[]*onnxpb.ValueInfoProto{info("x", dtype.Float32, 3), index}, `input "x" does not take the shape 1x3`},
		{[]*onnxpb.ValueInfoProto{info("x", dtype.Float16, 1, 3), index}, `input "x" is not of type FLOAT`},
		{[]*onnxpb.ValueInfoProto{info("x", dtype.Int8, 1, 3), index}, `input "x" takes codes of int8, as key-value caches of --kv-cache: models with such caches cannot be compared with others`},
		{[]*onnxpb.ValueInfoProto{info("z", dtype.Float32, 1, 3), index}, `it has no input "x"`},
		{[]*onnxpb.ValueInfoProto{index}, "it has 1, not 2"},
	} {
		got := ""
		if err := takes(c.infos, values); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// What is wrong with the models is said before ONNX Runtime is looked for.
func TestErrors(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	mlp, gpt := modeltest.Build(t, "mlp"), "../../testmodels/tinygpt/model.onnx"
	for _, c := range []struct {
		paths []string
		opts  Options
		want  string
	}{
		{nil, Options{}, "no model is given"},
		{[]string{mlp, filepath.Join(t.TempDir(), "missing.onnx")}, Options{}, "missing.onnx"},
		{[]string{mlp, gpt}, Options{}, "takes other inputs than"},
		{[]string{mlp}, Options{Dims: map[string]int64{"bach": 1}}, `did you mean "batch"?`},
		{[]string{mlp}, Options{Inputs: []string{os.DevNull}}, os.DevNull},
		{[]string{mlp}, Options{Inputs: []string{"x.npy"}, Dims: map[string]int64{"batch": 1}}, "not for inputs from files"},
		{[]string{mlp, mlp}, Options{}, "cannot use ONNX Runtime: "},
	} {
		if _, err := Models(t.Context(), c.paths, c.opts); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %s", c.paths, err, c.want)
		}
	}
}
