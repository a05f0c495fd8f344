package analyze_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/rules"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// modelError converts a model and returns the error of it all as an analysis defines it,
// of so many weights, and the bytes of the output.
func modelError(t *testing.T, in string, weights int, opts onnxq.Options) (e float64, bytes int64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.onnx")
	opts.AllowFallback = true
	r, err := onnxq.Convert(context.Background(), in, out, opts)
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
// model, with either bound. The record of the conversion counts.
func TestRecommendationsKeepBounds(t *testing.T) {
	folder := t.TempDir()
	var models []string
	if !testing.Short() {
		models = append(models, "../../testmodels/tinygpt/model.onnx") // takes 10 s
	}
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
		m, err := onnxq.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		base := onnxq.Options{Ops: []string{"all"}}
		if strings.HasPrefix(filepath.Base(in), "embedding") {
			base.Target = spec.ORT // whose forms have more nodes
		}
		check := func(opts analyze.Options) *analyze.Analysis {
			t.Helper()
			a, err := analyze.Model(context.Background(), m, opts)
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
			most := 0.01
			if a.FloatBytes < 1<<14 { // some bytes for digits and names are a part of these
				most = 0.2
			}
			if a.Gap < 0 || a.Gap > most && opts.Provenance == nil {
				t.Errorf("%s: gap %v in %d bytes", in, a.Gap, a.OutBytes)
			}
			return a
		}
		last := int64(math.MaxInt64)
		var a *analyze.Analysis
		for _, bound := range []float64{1e-6, 0.02, 0.08, 0.1} {
			a = check(analyze.Options{Options: base, MaxError: bound})
			if a.OutBytes > last {
				t.Errorf("%s: %d bytes at error %v, fewer at less", in, a.OutBytes, bound)
			}
			last = a.OutBytes
		}
		for _, part := range []float64{0, 0.05, 0.3, 1} {
			limit := a.OutBytes + int64(part*float64(a.FloatBytes-a.OutBytes))
			b := check(analyze.Options{Options: base, MaxSize: limit})
			if part == 0 && b.Error > a.Error*(1+1e-9) {
				t.Errorf("%s: error %v in %d bytes, %v is possible", in, b.Error, limit, a.Error)
			}
			if part > 0 {
				recorded := base
				recorded.Provenance = &spec.Step{Tool: "test", Options: "--ops all", Brief: part < 0.1}
				check(analyze.Options{Options: recorded, MaxSize: max(limit, a.OutBytes+1200)})
			}
		}
		check(analyze.Options{Options: base, MaxError: 0.1, MaxSize: a.OutBytes})
		if _, err := analyze.Model(t.Context(), m, analyze.Options{Options: base, MaxError: 1e-9, MaxSize: a.OutBytes}); err == nil {
			t.Errorf("%s: no error", in)
		}
		_, err = analyze.Model(t.Context(), m, analyze.Options{Options: base, MaxSize: 10})
		var small *analyze.SizeError
		if !errors.As(err, &small) {
			t.Fatalf("%s: %v", in, err)
		}
		if least := check(analyze.Options{Options: base, MaxSize: small.Least}); least.OutBytes != small.Least {
			t.Errorf("%s: %d bytes, %d were told", in, least.OutBytes, small.Least)
		}
	}
}

// A part of a tensor that is stored for it alone is a weight as others are.
func TestAnalyzeFolded(t *testing.T) {
	for _, target := range []spec.Target{spec.Portable, spec.ORT} {
		m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(
			modeltest.Tensors{modeltest.Floats("w1", 64, 32), modeltest.Floats("w2", 64, 32)},
			modeltest.Nodes{modeltest.Node("Concat", "w", "w1 w2", modeltest.IntAttr("axis", 1)), modeltest.Node("MatMul", "y", "x w")})))
		a, err := analyze.Model(t.Context(), m, analyze.Options{Options: onnxq.Options{Target: target}, MaxSize: 8000})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Weights) != 1 || a.OutBytes > 8000 {
			t.Errorf("%s: %d weights, %d bytes", target, len(a.Weights), a.OutBytes)
		}
	}
}

// The name of a file of external data counts as often as the model contains it.
func TestExternalDataKeepsBounds(t *testing.T) {
	in := modeltest.Write(t, testmodels.MLP(5, 256, 256, 256, 256, 64))
	m := modeltest.Open(t, in)
	out := filepath.Join(t.TempDir(), strings.Repeat("long", 40)+".onnx")
	opts := onnxq.Options{ExternalData: spec.ExternalAlways}
	for size := int64(120_000); size < 200_000; size += 9876 {
		a, err := analyze.Model(t.Context(), m, analyze.Options{Options: opts, MaxSize: size, Output: out})
		if err != nil {
			t.Fatal(err)
		}
		opts.Precision = a.Precision
		opts.AllowFallback = true
		if _, err := onnxq.Convert(t.Context(), in, out, opts); err != nil {
			t.Fatal(err)
		}
		opts.Precision = nil
		written := int64(0)
		for _, path := range []string{out, out + ".data"} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			written += info.Size()
		}
		if written > size || written != a.OutBytes {
			t.Errorf("%d bytes were written, %d told, %d allowed", written, a.OutBytes, size)
		}
	}
}

// Convolutions get 8 bits, unless candidates are named.
func TestAnalyzeConvolutions(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.Conv(7).Write(in); err != nil {
		t.Fatal(err)
	}
	m, err := onnxq.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for name, candidates := range map[string][]spec.Candidate{"default": nil, "named": spec.DefaultCandidates} {
		opts := analyze.Options{Options: onnxq.Options{Ops: []string{"all"}}, Candidates: candidates, MaxError: 0.5}
		a, err := analyze.Model(t.Context(), m, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range a.Weights {
			narrow := slices.ContainsFunc(w.Choices, func(c analyze.Choice) bool { return c.Candidate.Format != spec.Float && c.Candidate.Format.Bits() < 8 })
			if narrow != (candidates != nil) {
				t.Errorf("%s: %s has the choices %v", name, w.Name, w.Choices)
			}
		}
	}
}

// By default, formats and forms are those that the target takes and runs well.
func TestDefaultsOfTargets(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.MLP(6, 256, 256).Write(in); err != nil {
		t.Fatal(err)
	}
	m, err := onnxq.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	has := func(target spec.Target, candidates ...spec.Candidate) map[string]bool {
		a, err := analyze.Model(t.Context(), m, analyze.Options{Options: onnxq.Options{Target: target}, Candidates: candidates})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, c := range a.Weights[0].Choices {
			found[c.Candidate.String()] = true
		}
		return found
	}
	everywhere := []string{"int4:32", "int8:channel"}
	for target, want := range map[spec.Target]map[string]bool{
		spec.Portable: {"q4_k": true, "q4_0": true, "int4:32:zp:uint8scale": true, "int4:32:zp": true},
		spec.ORT:      {"q4_k": false, "q4_0": true, "int4:32:zp:uint8scale": true, "int4:32:zp": true}, // it decodes q4_k at every run
		spec.TensorRT: {"int4:32:zp:uint8scale": false, "int4:32:zp": false},
	} {
		found := has(target)
		for c, is := range want {
			if found[c] != is {
				t.Errorf("%s: %s: %v", target, c, found[c])
			}
		}
		for _, c := range everywhere {
			if target != spec.TensorRT && !found[c] {
				t.Errorf("%s lacks %s", target, c)
			}
		}
	}
	if named := has(spec.ORT, spec.Candidate{Format: "q4_k"}); !named["q4_k"] {
		t.Error("a candidate that was named is gone")
	}
}

// Two readers share a weight: ONNX Runtime decodes its integers once, when it loads the model, and ggml's blocks at
// every run. Such choices are left out, unless codes shall stay codes in memory.
func TestDecodedOnce(t *testing.T) {
	in := modeltest.Write(t, modeltest.Model(
		modeltest.Tensors{modeltest.Floats("w", 128, 256)},
		modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("MatMul", "y", "x w"), modeltest.Node("Add", "z", "h y")}))
	m := modeltest.Open(t, in)
	for smallest, want := range map[bool]map[string]bool{
		false: {"int4:32": true, "int4:16:zp:uint8scale": true, "q4_k": false},
		true:  {"int4:32": true, "int4:16:zp:uint8scale": true, "q4_k": true},
	} {
		a, err := analyze.Model(t.Context(), m, analyze.Options{Options: onnxq.Options{Target: spec.ORT, Smallest: smallest}})
		if err != nil {
			t.Fatal(err)
		}
		for c, is := range want {
			candidate, err := spec.ParseCandidate(c)
			if err != nil {
				t.Fatal(err)
			}
			if _, found := a.Weights[0].ChoiceOf(candidate); found != is {
				t.Errorf("smallest %v: %s: %v, want %v", smallest, c, found, is)
			}
		}
	}
}

// A weight whose scales are too different for 8 bits is tried with scales of float16, as it would be
// converted.
func TestAnalyzeCoarseScales(t *testing.T) {
	built := testmodels.MLP(6, 256, 256, 256)
	raw := built.Proto.Graph.Initializer[0].RawData
	for i := range 256 { // the first row
		v := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(1000*v))
	}
	m := modeltest.Open(t, modeltest.Write(t, built))
	c := spec.Candidate{Format: spec.Int4, Block: 32, ScaleType: spec.ScaleInt8}
	a, err := analyze.Model(t.Context(), m, analyze.Options{Candidates: []spec.Candidate{c}, MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []spec.ScaleType{spec.ScaleFloat16, spec.ScaleInt8} {
		w := a.Weights[i]
		if len(w.Choices) != 2 || w.Choices[1].Candidate.ScaleType != want {
			t.Errorf("%s: %+v", w.Name, w.Choices)
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
	m, err := onnxq.Open(in)
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
		candidates = append(candidates, c)
	}
	var first []byte
	for _, threads := range []int{1, 4} {
		a, err := analyze.Model(context.Background(), m, analyze.Options{Options: onnxq.Options{Threads: threads}, Candidates: candidates})
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
			precision, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := onnxq.Convert(context.Background(), in, filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{Precision: precision})
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
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.NaN(testmodels.MLP(1, 64, 64, 64), "w1").Write(in); err != nil {
		t.Fatal(err)
	}
	m, err := onnxq.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if a, err := analyze.Model(context.Background(), m, analyze.Options{}); err != nil || len(a.Weights) != 1 {
		t.Errorf("a weight with NaN: %v", err)
	}
	for _, opts := range []analyze.Options{{MaxError: -1}, {MaxError: math.NaN()}, {MaxSize: -1}, {Options: onnxq.Options{Precision: &rules.Precision{}}}, {Options: onnxq.Options{Ops: []string{"Conv"}}}} {
		if _, err := analyze.Model(context.Background(), m, opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
}

// Where nothing can be quantized, the error says why.
func TestAnalyzeNothing(t *testing.T) {
	weight := modeltest.Tensors{modeltest.Floats("w", 64, 32)}
	nodes := modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}
	obstructed := modeltest.Model(weight, nodes)
	obstructed.Proto.Graph.Output = append(obstructed.Proto.Graph.Output, &onnxpb.ValueInfoProto{Name: new("w")})
	done := filepath.Join(t.TempDir(), "done.onnx")
	modeltest.Convert(t, modeltest.Write(t, modeltest.Model(weight, nodes)), done, onnxq.Options{Block: 32})
	for _, c := range []struct {
		path string
		opts onnxq.Options
		want string
	}{
		{modeltest.Write(t, obstructed), onnxq.Options{}, `"w" was selected but cannot be quantized: graph output`},
		{modeltest.Write(t, modeltest.Model(weight, nodes)), onnxq.Options{Ops: []string{"Conv"}}, "no weight was selected; --ops all selects those of more operators"},
		{modeltest.Write(t, testmodels.NaN(testmodels.NaN(testmodels.MLP(1, 64, 64, 64), "w0"), "w1")), onnxq.Options{}, "the weights hold NaN, infinity or values too large for their scales"},
		{done, onnxq.Options{}, "all weights are quantized already"},
	} {
		_, err := analyze.Model(t.Context(), modeltest.Open(t, c.path), analyze.Options{Options: c.opts})
		if want := "nothing can be quantized: " + c.want; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
