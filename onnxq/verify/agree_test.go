package verify

import (
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Figures of two runs are far apart if one of them is bad.
func TestFarthest(t *testing.T) {
	out := func(name string, sqnr float64) Output {
		return Output{Name: name, DType: "FLOAT", SQNR: sqnr, Elements: 1}
	}
	for _, c := range []struct {
		a, b []Output
		want string
	}{
		{[]Output{out("y", 155)}, []Output{out("y", 15)}, "y"},
		{[]Output{out("y", 15)}, []Output{out("y", 155)}, "y"},
		{[]Output{out("y", 35), out("z", 60)}, []Output{out("y", 25), out("z", 30)}, "z"},
		{[]Output{out("y", 999)}, []Output{out("y", 45)}, ""},
		{[]Output{out("y", 30)}, []Output{out("y", 20)}, ""},
		{[]Output{{Name: "y", DType: "INT64", SQNR: 100, Elements: 1}}, []Output{out("y", 10)}, ""},
		{[]Output{out("y", 100)}, nil, ""},
	} {
		if got, _, _ := farthest(c.a, c.b); got != c.want {
			t.Errorf("%v %v: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// The first node whose values differ is found between two runs, here of models with other weights in the second layer.
func TestFirstApart(t *testing.T) {
	m := testmodels.MLP(1, 8, 8, 8)
	a := modeltest.Write(t, m)
	for _, w := range m.Proto.Graph.Initializer {
		for i := 3; w.GetName() == "w1" && i < len(w.RawData); i += 4 {
			w.RawData[i] ^= 0x80 // the sign
		}
	}
	b := modeltest.Write(t, m)
	x, err := execute.FromFloat64s(dtype.Float32, []int64{1, 8}, []float64{1, -1, 2, 3, -2, 1, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	x.Name = "x"
	v := &verifier{ctx: t.Context(), report: &Report{}}
	engine := &observe.Engine{}
	if op, node := v.firstApart(t.Context(), traceSide{engine: engine, path: a}, traceSide{engine: engine, path: a}, []*execute.Tensor{x}); op != "" {
		t.Errorf("the same model: %s %s", op, node)
	}
	if op, node := v.firstApart(t.Context(), traceSide{engine: engine, path: a}, traceSide{engine: engine, path: b}, []*execute.Tensor{x}); op != "MatMul" || !strings.Contains(node, "1") {
		t.Errorf("another weight: %q %q", op, node)
	}
}

// Runs that disagree make a verdict poor, and say why.
func TestDisagreement(t *testing.T) {
	v := &verifier{report: &Report{Execution: Execution{Compared: true}}}
	if v.verdict() != Sound {
		t.Error(v.verdict())
	}
	v.report.Execution.Disagreement = &Disagreement{Model: floatModel, Runs: [2]string{"go", "ONNX Runtime 1.32"}, Output: "y", SQNR: 3, Op: "Conv", Node: "c"}
	v.report.Verdict = v.verdict()
	want := `the verdict is uncertain: go and ONNX Runtime 1.32 compute IN differently, output "y" with SQNR 3.0 dB, first in Conv "c"`
	if got := v.report.Reasons(); v.report.Verdict != Poor || len(got) != 1 || got[0] != want {
		t.Errorf("%s: %q", v.report.Verdict, got)
	}
}
