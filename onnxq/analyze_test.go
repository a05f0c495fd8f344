package onnxq

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// modelError converts a model and returns the error of it all as an analysis defines it,
// of so many weights, and the bytes of the output.
func modelError(t *testing.T, in string, weights int, opts Options) (e float64, bytes int64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.onnx")
	r, err := Convert(context.Background(), in, out, opts)
	if err != nil {
		t.Fatal(err)
	}
	noise := 0.0
	for _, w := range r.Tensors {
		noise += math.Pow(10, -w.SQNR/10)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	return math.Sqrt(noise / float64(weights)), info.Size()
}

// What is recommended converts, and keeps to the bound and to what was told: on each
// model, with either bound.
func TestRecommendationsKeepBounds(t *testing.T) {
	folder := t.TempDir()
	models := []string{"../testmodels/tinygpt/model.onnx"}
	for name, m := range map[string]*testmodels.Model{
		"mlp": testmodels.MLP(5, 512, 768, 256, 64), "embedding": testmodels.Embedding(5, 3000, 96), "names": testmodels.Names(5), "if": testmodels.If(5),
	} {
		path := filepath.Join(folder, name+".onnx")
		if err := m.Write(path); err != nil {
			t.Fatal(err)
		}
		models = append(models, path)
	}
	for _, in := range models {
		m, err := Open(in)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		base := Options{Ops: []string{"all"}}
		check := func(opts AnalyzeOptions) *Analysis {
			t.Helper()
			a, err := m.Analyze(context.Background(), opts)
			if err != nil {
				t.Fatalf("%s: %v", in, err)
			}
			raw, err := json.Marshal(a.Precision)
			if err != nil {
				t.Fatal(err)
			}
			o := opts.Options
			if o.Precision, err = rules.ParsePrecision(raw); err != nil {
				t.Fatalf("%s: %v: %s", in, err, raw)
			}
			e, bytes := modelError(t, in, len(a.Weights), o)
			if math.Abs(e-a.Error) > 1e-9*e || bytes != a.OutBytes {
				t.Errorf("%s: error %v in %d bytes, but %v in %d were told", in, e, bytes, a.Error, a.OutBytes)
			}
			if opts.MaxError > 0 && e > opts.MaxError {
				t.Errorf("%s: error %v, bound %v", in, e, opts.MaxError)
			}
			if opts.MaxSize > 0 && bytes > opts.MaxSize {
				t.Errorf("%s: %d bytes, bound %d", in, bytes, opts.MaxSize)
			}
			// In a few KiB, what is uncertain of nodes' bytes leaves much open.
			if toy := a.FloatBytes < 1<<17; a.Gap < 0 || a.Gap > 0.05 && !toy {
				t.Errorf("%s: gap %v", in, a.Gap)
			}
			return a
		}
		last := int64(math.MaxInt64)
		var a *Analysis
		for _, bound := range []float64{1e-6, 0.02, 0.08, 0.1} {
			a = check(AnalyzeOptions{Options: base, MaxError: bound})
			if a.OutBytes > last {
				t.Errorf("%s: %d bytes at error %v, fewer at less", in, a.OutBytes, bound)
			}
			last = a.OutBytes
		}
		for _, part := range []float64{0, 0.05, 0.3, 1} {
			limit := a.OutBytes + int64(part*float64(a.FloatBytes-a.OutBytes))
			b := check(AnalyzeOptions{Options: base, MaxSize: limit})
			if part == 0 && b.Error > a.Error*(1+1e-9) {
				t.Errorf("%s: error %v in %d bytes, %v is possible", in, b.Error, limit, a.Error)
			}
		}
		check(AnalyzeOptions{Options: base, MaxError: 0.1, MaxSize: a.OutBytes})
		for _, opts := range []AnalyzeOptions{{Options: base, MaxSize: 10}, {Options: base, MaxError: 1e-9, MaxSize: a.OutBytes}} {
			if _, err := m.Analyze(context.Background(), opts); err == nil {
				t.Errorf("%s: %+v: no error", in, opts)
			}
		}
	}
}

// The same comes out at any number of threads, and each kind of format is measured as a
// conversion measures it.
func TestAnalyzeAgreesWithConvert(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.MLP(6, 192, 128, 64).Write(in); err != nil {
		t.Fatal(err)
	}
	m, err := Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var candidates []spec.Candidate
	for _, text := range []string{"int4:32", "int8:channel", "uint4:32:zp", "int2:16:zp", "fp8-e4m3", "nvfp4", "mxfp4", "mxfp8", "nf4", "fp4", "q4_0", "q5_1", "q3_k", "q4_k", "iq4_nl"} {
		c, err := spec.ParseCandidate(text)
		if err != nil {
			t.Fatal(err)
		}
		if c.String() != text {
			t.Errorf("%s became %s", text, c)
		}
		candidates = append(candidates, c)
	}
	var first []byte
	for _, threads := range []int{1, 4} {
		a, err := m.Analyze(context.Background(), AnalyzeOptions{Options: Options{Threads: threads}, Candidates: candidates})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && string(raw) != string(first) {
			t.Error("the result depends on the number of threads")
		}
		first = raw
		for i, c := range candidates {
			precision, err := rules.NewPrecision(rules.PrecisionEntry{"*", c.Override()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := Convert(context.Background(), in, filepath.Join(t.TempDir(), "out.onnx"), Options{Precision: precision})
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Weights) != 2 || len(r.Tensors) != 2 {
				t.Fatalf("%s: %d weights, %d converted", c, len(a.Weights), len(r.Tensors))
			}
			for k, w := range a.Weights {
				got := w.Choices[i+1]
				if got.Candidate != c || got.Bytes != r.Tensors[k].OutBytes || math.Abs(got.Stats.MSE-r.Tensors[k].MSE) > 1e-9*got.Stats.MSE || math.Abs(got.Stats.MaxError-r.Tensors[k].MaxError) > 1e-6*got.Stats.MaxError {
					t.Errorf("%s of %s: %+v, a conversion has %+v", c, w.Name, got, r.Tensors[k])
				}
			}
		}
	}
}

func TestAnalyzeOptions(t *testing.T) {
	for _, text := range []string{"", "int3", "int4:1", "int4:x", "int4:32:z", "nf4:64:zp", "mxfp4:16", "float:2", "int4:32:zp:"} {
		if c, err := spec.ParseCandidate(text); err == nil {
			t.Errorf("%q: %s, no error", text, c)
		}
	}
	for _, want := range []spec.Candidate{{Format: spec.Float}, {Format: spec.Int8}, {Format: spec.Int4, ZeroPoint: true}, {spec.Int4, spec.PerChannel, true}} {
		if c, err := spec.ParseCandidate(want.String()); c != want || err != nil {
			t.Errorf("%s became %s, %v", want, c, err)
		}
	}
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.NaN(testmodels.MLP(1, 64, 64, 64), "w1").Write(in); err != nil {
		t.Fatal(err)
	}
	m, err := Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if a, err := m.Analyze(context.Background(), AnalyzeOptions{}); err != nil || len(a.Weights) != 1 {
		t.Errorf("a weight with NaN: %v", err)
	}
	for _, opts := range []AnalyzeOptions{{MaxError: -1}, {MaxError: math.NaN()}, {MaxSize: -1}, {Options: Options{Precision: &rules.Precision{}}}, {Options: Options{Ops: []string{"Conv"}}}} {
		if _, err := m.Analyze(context.Background(), opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
}

func TestNewPrecision(t *testing.T) {
	eight, format := 8, spec.NF4
	p, err := rules.NewPrecision(rules.PrecisionEntry{rules.PatternOf(`w[0]*?\<é`), spec.Override{Bits: &eight}}, rules.PrecisionEntry{"x*", spec.Override{Format: &format}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{`w[0]*?\<é`: true, "w0": false, `w[0]ab\<é`: false, "xy": true} {
		if _, ok := p.For(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rules.ParsePrecision(raw)
	if err != nil || len(again.Entries()) != 2 || *again.Entries()[0].Override.Bits != 8 {
		t.Errorf("%s: %v", raw, err)
	}
	five := 5
	for _, e := range []rules.PrecisionEntry{{"a\xff", spec.Override{}}, {"", spec.Override{}}, {"a", spec.Override{Bits: &five}}} {
		if _, err := rules.NewPrecision(e); err == nil {
			t.Errorf("%+v: no error", e)
		}
	}
}
