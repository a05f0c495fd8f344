package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

// candidates keep tests short.
var candidates = []spec.Candidate{{Format: spec.Int4, Block: 64}, {Format: spec.Int4, Block: 32, ZeroPoint: true}, {Format: spec.Int8, Block: 32}}

// made converts the model at in with each of the options and reports on the results.
func made(t *testing.T, in string, opts report.Options, conversions ...onnxq.Options) *report.Report {
	t.Helper()
	folder := t.TempDir()
	var outs []string
	for i, o := range conversions {
		out := filepath.Join(folder, fmt.Sprintf("out%d.onnx", i))
		modeltest.Convert(t, in, out, o)
		outs = append(outs, out)
	}
	opts.Candidates = candidates
	r, err := report.Models(context.Background(), in, outs, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func page(t *testing.T, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestModels(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	r := made(t, in, report.Options{}, onnxq.Options{Block: 32}, onnxq.Options{Bits: 8})
	if r.Verdict != verify.Sound || r.Outs[0].Verdict != verify.Sound || len(r.Outs) != 2 {
		t.Fatalf("%+v %+v", r.Verdict, r.Outs)
	}
	sum := 0.0
	for _, w := range r.Verification.Weights {
		sum += math.Pow(10, -w.SQNR/10)
	}
	if want := math.Sqrt(sum / 3); math.Abs(r.Outs[0].Error-want) > 1e-12 || r.Outs[1].Error > want/8 {
		t.Errorf("errors %v, %v, want %v and far less", r.Outs[0].Error, r.Outs[1].Error, want)
	}
	if !slices.IsSortedFunc(r.Weights, func(a, b report.Weight) int { return int(math.Copysign(1, b.Cost-a.Cost)) }) || len(r.Weights) != 3 {
		t.Errorf("weights are not sorted by cost: %+v", r.Weights)
	}
	for _, w := range r.Weights {
		if w.Detail == nil || len(w.Choices) != 1+len(candidates) || w.Format != "int4:32" || w.Bytes >= w.FloatBytes {
			t.Errorf("%+v", w)
		}
	}
	for i, p := range r.Sizes.Frontier[1:] {
		if before := r.Sizes.Frontier[i]; p.Bytes <= before.Bytes || p.Error >= before.Error {
			t.Errorf("the frontier goes from %+v to %+v", before, p)
		}
	}
	kept := 0
	for _, k := range r.Kept {
		kept += len(k.Names)
	}
	if kept != 3 { // the biases
		t.Errorf("stayed float: %+v", r.Kept)
	}
}

// The suggestion does what it says when the model is converted with it.
func TestSuggestion(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	before := made(t, in, report.Options{}, onnxq.Options{Block: 64})
	fix := before.Fix
	after := made(t, in, report.Options{}, onnxq.Options{Block: 64, Precision: fix.Precision})
	if math.Abs(after.Outs[0].Error-fix.After) > 1e-9 || fix.Before != before.Outs[0].Error || fix.After > fix.Before/2 {
		t.Errorf("error %v, suggested were %v instead of %v", after.Outs[0].Error, fix.After, fix.Before)
	}
	if more := after.Outs[0].Bytes - before.Outs[0].Bytes; more < fix.Bytes-512 || more > fix.Bytes+512 {
		t.Errorf("%d more bytes, suggested were %d", more, fix.Bytes)
	}
}

// The same models give the same bytes, and JSON that holds all of it.
func TestDeterministic(t *testing.T) {
	in := modeltest.Build(t, "tied")
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32, Ops: []string{"all"}})
	var pages, documents [2]string
	for i := range pages {
		r, err := report.Models(context.Background(), in, []string{out}, report.Options{Candidates: candidates, Threads: 1 + i})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		pages[i], documents[i] = page(t, r), string(raw)
	}
	if pages[0] != pages[1] || documents[0] != documents[1] {
		t.Error("two reports on the same models differ")
	}
}

func TestVerdict(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	least := 60.0
	r := made(t, in, report.Options{Verify: verify.Options{MinSQNR: &least}, NoTrial: true}, onnxq.Options{Block: 32})
	if r.Verdict != verify.Failed || len(r.Judgement.Failures) == 0 || r.Fix != nil || r.Sizes.Skipped == "" {
		t.Errorf("%+v, %+v", r.Verdict, r.Sizes)
	}
	for _, c := range r.Judgement.Checks {
		if want := !strings.HasPrefix(c.What, "SQNR of weights") && !strings.HasPrefix(c.What, "SQNR of outputs"); c.OK != want || c.Given == want {
			t.Errorf("%+v", c)
		}
	}
	if text := page(t, r); !strings.Contains(text, "Failed") || !strings.Contains(text, "below 60 dB") {
		t.Error("the page does not tell the failure")
	}
	r = made(t, in, report.Options{Verify: verify.Options{Engine: verify.None}, NoTrial: true}, onnxq.Options{Block: 32})
	if c := r.Judgement.Checks[1]; c.Limit != "≥ 6 dB, with 2 bits ≥ 0.5 dB" {
		t.Errorf("limit %q", c.Limit)
	}
	if text := page(t, r); r.Verdict != verify.Sound || strings.Contains(text, "Passed") || strings.Contains(text, "✓") {
		t.Errorf("without outputs: %+v", r.Verdict)
	}
}

// A calibrated model stands beside formats by the errors of outputs. It has less error than codes of its format without data.
func TestCalibrated(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	samples := filepath.Join(t.TempDir(), "x.npy")
	if err := modeltest.WriteSamples(samples, 64, 64); err != nil {
		t.Fatal(err)
	}
	data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
	if err := data.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := made(t, in, report.Options{Verify: verify.Options{Inputs: []string{samples}}}, onnxq.Options{Block: 64, Algorithm: spec.GPTQ, Calibration: data, Provenance: &spec.Step{Command: "convert"}})
	if !r.Outs[0].Calibrated || len(r.Sizes.ByOutputs) != len(candidates) || r.Sizes.ByOutputs[0].Name != "int4:64" {
		t.Fatalf("%+v", r.Sizes.ByOutputs)
	}
	if own, plain := r.Outs[0].OutputError, r.Sizes.ByOutputs[0].Error; own >= plain {
		t.Errorf("error %v with data, %v without", own, plain)
	}
	if text := page(t, r); !strings.Contains(text, "sizes.by_outputs.0.error") || strings.Contains(text, "sizes.candidates.0.error") {
		t.Error("the table is not about outputs")
	}
}

// Strings from models are text, wherever they stand.
func TestEscaped(t *testing.T) {
	const name = `</script><script>alert("x")</script><img src=x onerror='alert(1)'>`
	tensors := modeltest.Tensors{modeltest.Floats(name, 64, 32), modeltest.Floats("b"+name, 32)}
	nodes := modeltest.Nodes{modeltest.Node("MatMul", name+"y", ""), modeltest.Node("Add", "y", "")}
	nodes[0].Input, nodes[1].Input = []string{"x", name}, []string{name + "y", "b" + name}
	m := modeltest.Model(tensors, nodes)
	in := modeltest.Write(t, m)
	r := made(t, in, report.Options{Command: name, Tool: name}, onnxq.Options{Block: 32})
	if len(r.Weights) != 1 || r.Weights[0].Name != name {
		t.Fatalf("%+v", r.Weights)
	}
	text := page(t, r)
	if n := strings.Count(text, "<script"); n != 2 {
		t.Errorf("the page has %d scripts", n)
	}
	if strings.Contains(text, "<img") {
		t.Error("a name became an element")
	}
	if !strings.Contains(text, `for <span class="wide">--precision-info</span>, and`) {
		t.Error("a line may end inside of a flag")
	}
}

// A thousand weights of the largest kind fit into 2 MB.
func TestPageSize(t *testing.T) {
	r := &report.Report{
		In: report.File{Path: "in.onnx", Bytes: 4 << 30}, Outs: []report.File{{Path: "out.onnx", Bytes: 1 << 30, Error: 0.01, Verdict: verify.Passed}},
		Verdict: verify.Passed, Judgement: &report.Judgement{Reasons: []string{"within your limits, on your data"}},
	}
	parts := make([]float64, 48)
	for i := range parts {
		parts[i] = 0.00612 + float64(i)*1e-5
	}
	detail := &compare.Detail{From: -136.5, To: 135.5, Bins: make([]int64, 68), Beyond: 0.000123, Channels: parts, Positions: parts}
	for i := range detail.Bins {
		detail.Bins[i] = 123456 + int64(i*i)
	}
	for c := range 256 {
		detail.Codes = append(detail.Codes, compare.CodeCount{Value: float64(c - 128), Count: 12345})
	}
	var choices []report.SizePoint
	for _, c := range append([]spec.Candidate{{Format: spec.Float}}, spec.DefaultCandidates...) {
		choices = append(choices, report.SizePoint{Name: c.String(), Bytes: 12345678, Error: 0.0987654})
	}
	for i := range 1000 {
		w := report.Weight{
			Name: fmt.Sprintf("model.decoder.layers.%d.self_attention.query_key_value.weight_MatMul_%d", i/10, i), DType: "FLOAT", Shape: []int64{4096, 11008},
			Format: "int8:32", Form: "DequantizeLinear", FloatBytes: 180355072, Bytes: 47710208, Error: 0.00621, Cost: float64(2000 - i), SQNR: 44.1,
			Worst: &compare.BlockMatch{At: []int64{4064, 10007}, Length: 32, SQNR: 31.2}, Detail: detail, Choices: choices,
		}
		r.Weights = append(r.Weights, w)
		r.Kept = append(r.Kept, report.Kept{Reason: "read by Add:0", Bytes: 4096, Names: []string{w.Name}})
	}
	r.Kept = r.Kept[:20]
	if n := len(page(t, r)); n > 2e6 {
		t.Errorf("the page has %d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
	few := strings.Count(page(t, r), `<li role="option"`)
	for range 2 {
		r.Weights = append(r.Weights, r.Weights...)
	}
	text := page(t, r)
	if rows := strings.Count(text, `<li role="option"`); few != 1000 || rows != compare.MostDetails || !strings.Contains(text, "These are the first 2000 of 4000 weights.") {
		t.Errorf("%d of 1000 and %d of 4000 weights have rows", few, rows)
	}
}

func TestAnalysis(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	m := modeltest.Open(t, in)
	a, err := analyze.Model(context.Background(), m, analyze.Options{Candidates: candidates, MaxError: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.Analysis(context.Background(), in, m, a, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Weights) != 3 || r.Judgement != nil || r.Fix.Precision != a.Precision || r.Sizes.Recommended.Bytes != a.OutBytes {
		t.Errorf("%+v", r)
	}
	if text := page(t, r); !strings.Contains(text, "Formats for each weight") {
		t.Error(text[:200])
	}
}

// Outputs that are NaN fail, and the page has no numbers for them.
func TestNaN(t *testing.T) {
	in, folder := modeltest.Build(t, "mlp"), t.TempDir()
	good, bad := filepath.Join(folder, "good.onnx"), filepath.Join(folder, "bad.onnx")
	modeltest.Convert(t, in, good, onnxq.Options{Bits: 8})
	m := modeltest.Read(t, good)
	scales := map[string]bool{}
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "DequantizeLinear" {
			scales[n.Input[1]] = true
		}
	}
	for _, x := range m.Graph.Initializer {
		if scales[x.GetName()] {
			x.RawData = bytes.Repeat([]byte{0, 0, 0xc0, 0x7f}, len(x.RawData)/4)
		}
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, outs := range [][]string{{bad}, {good, bad}} {
		r, err := report.Models(context.Background(), in, outs, report.Options{NoTrial: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Outs[len(outs)-1].Verdict != verify.Failed {
			t.Errorf("%v passed", outs)
		}
		text := page(t, r)
		if !strings.Contains(text, "NaN or infinite outputs") || strings.Contains(text, "-999") {
			t.Errorf("the page of %v has numbers for NaN", outs)
		}
		if strings.Contains(text, "elements NaN or infinite") != (outs[0] == bad) {
			t.Errorf("the page of %v: weights that are NaN", outs)
		}
		for _, c := range r.Judgement.Checks {
			if strings.HasSuffix(c.What, "of outputs") && c.OK != (outs[0] == good) {
				t.Errorf("%v: %s: ok is %v", outs, c.What, c.OK)
			}
		}
	}
}
