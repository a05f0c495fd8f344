package checkpoint_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
	"onnxquant/spec"
)

// gptq has the tensors of a module with codes (7·k + 3·n) mod 16, and its weight as [N,K].
func gptq(name string, n, k, group int, zero func(column int) int) (list []stored, want []float32) {
	words, zeros := make([]uint32, k/8*n), make([]uint32, k/group*n/8)
	scales := make([]float32, k/group*n)
	for i := range scales {
		scales[i] = float32(i%17+1) / 64
	}
	for row := range n {
		for i := range k {
			code := (7*i + 3*row) % 16
			words[i/8*n+row] |= uint32(code) << (4 * (i % 8))
			want = append(want, float32(code-zero(row))*scales[i/group*n+row])
		}
		for g := range k / group {
			zeros[(g*n+row)/8] |= uint32(zero(row)-1) << (4 * (row % 8))
		}
	}
	bytes := func(x []uint32) (b []byte) {
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	return []stored{
		{name + ".qweight", "I32", []int64{int64(k / 8), int64(n)}, bytes(words)},
		{name + ".qzeros", "I32", []int64{int64(k / group), int64(n / 8)}, bytes(zeros)},
		stored{name: name + ".scales", typ: "F16", shape: []int64{int64(k / group), int64(n)}}.with(dtype.Float16, scales),
	}, want
}

// Codes of GPTQ get the format that has them, whatever the options say, and decoded they are the same numbers.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		zero func(int) int
		want spec.Format
		typ  dtype.DType
	}{
		{func(int) int { return 8 }, spec.Int4, dtype.Float32},
		{func(n int) int { return 1 + n%15 }, spec.Uint4, dtype.Float32},
		{func(n int) int { return 1 + n%15 }, spec.Uint4, dtype.Float16},
		{func(n int) int { return 1 + n%16 }, spec.Uint8, dtype.Float32}, // zero points up to 16
	} {
		const n, k = 24, 64
		list, want := gptq("model.layers.0.mlp.up_proj", n, k, 16, c.zero)
		path := checkpointOf(t, `{"quantization_config": {"bits": 4}}`, list...)
		m := wide(t, c.typ, k, n)
		w, err := checkpoint.Read(m, path, nil)
		if err != nil || w.Coded["GPTQ"] != 1 || len(w.Unused) > 0 {
			t.Fatalf("%+v, %v", w, err)
		}
		if got := content(t, m, "onnx::MatMul_7"); !same(got, turned(want, n, k)) {
			t.Errorf("other elements: %v", got[:8])
		}
		p, err := m.Plan(onnxq.Options{Bits: 8, Block: 32})
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range p.Tensors {
			if tensor.Name == "onnx::MatMul_7" && (tensor.Format != c.want || tensor.Block != 16) {
				t.Errorf("%s in blocks of %d, want %s of 16", tensor.Format, tensor.Block, c.want)
			}
		}
		r, err := p.Convert(t.Context(), filepath.Join(t.TempDir(), "out.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range r.Tensors {
			if tensor.Name == "onnx::MatMul_7" && tensor.MaxError != 0 {
				t.Errorf("%s: error %v", tensor.Format, tensor.MaxError)
			}
		}
	}
}

// Scales that float16 does not hold are rounded, and the report has the errors of the rounded ones.
func TestRoundedScales(t *testing.T) {
	const n, k = 24, 64
	for _, exact := range []bool{false, true} {
		list, _ := gptq("model.layers.0.mlp.up_proj", n, k, 16, func(int) int { return 8 })
		scales := make([]float32, n*k/16)
		for i := range scales {
			scales[i] = 1e-7 * float32(i%17+1)
		}
		if !exact {
			list[2] = floats(list[2].name, scales, list[2].shape...)
		}
		m := wide(t, dtype.Float32, k, n)
		if _, err := checkpoint.Read(m, checkpointOf(t, `{"quantization_config": {"bits": 4}}`, list...), nil); err != nil {
			t.Fatal(err)
		}
		out, float := filepath.Join(t.TempDir(), "out.onnx"), filepath.Join(t.TempDir(), "float.onnx")
		convert := func(path string, opts onnxq.Options) *onnxq.Report {
			p, err := m.Plan(opts)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Convert(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := convert(out, onnxq.Options{Bits: 4, FloatType: spec.Float16})
		convert(float, onnxq.Options{Bits: 4, Exclude: []string{"*"}, AllowFallback: true})
		tensor := reportOf(r, "onnx::MatMul_7")
		if (tensor.MaxError == 0) != exact || tensor.Format != spec.Int4 || tensor.Block != 16 {
			t.Errorf("exact %v: %s of %d, error %v", exact, tensor.Format, tensor.Block, tensor.MaxError)
		}
		weights := recognize.Weights(modeltest.Open(t, out).Graph())
		w := weights[slices.IndexFunc(weights, func(w *recognize.Weight) bool { return w.Block == 16 })]
		modeltest.CheckErrors(t, modeltest.Numbers(t, modeltest.Open(t, float), "onnx::MatMul_7"), w, tensor)
	}
}

// The configuration beside the files tells GPTQ's second format, whose zero points are stored as they are.
func TestConfig(t *testing.T) {
	const n, k = 8, 16
	folder := t.TempDir()
	list, want := gptq("model.layers.0.mlp.up_proj", n, k, 16, func(int) int { return 8 })
	write(t, filepath.Join(folder, "w.safetensors"), list...)
	text := `{"quantization_config": {"bits": 4, "group_size": 16, "checkpoint_format": "gptq_v2"}}`
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := wide(t, dtype.Float32, k, n)
	if _, err := checkpoint.Read(m, folder, nil); err != nil {
		t.Fatal(err)
	}
	for i, v := range content(t, m, "onnx::MatMul_7") {
		scale := float32(i%n%17+1) / 64
		if v != turned(want, n, k)[i]+scale {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}

// Without a configuration, zero points that are all in the middle show GPTQ's format.
func TestFormatByZeros(t *testing.T) {
	const n, k = 24, 64
	for _, c := range []struct {
		zero func(int) int // in the first format
		want string
	}{
		{func(int) int { return 8 }, ""},
		{func(int) int { return 9 }, ""}, // 8 in the second one
		{func(n int) int { return 1 + n%15 }, "is it GPTQ's format 1 or 2?"},
	} {
		list, _ := gptq("model.layers.0.mlp.up_proj", n, k, 16, c.zero)
		path := filepath.Join(t.TempDir(), "w.safetensors")
		write(t, path, list...)
		m := wide(t, dtype.Float32, k, n)
		if _, err := checkpoint.Read(m, path, nil); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
			continue
		}
		if p, err := m.Plan(onnxq.Options{}); c.want == "" && (err != nil || p.Tensors[1].Format != spec.Int4) {
			t.Errorf("%+v, %v", p.Tensors[1], err)
		}
	}
	folder := checkpointOf(t, `{"quantization_config": {`, floats("head.weight", ramp(5*24), 5, 24))
	if _, err := checkpoint.Read(wide(t, dtype.Float32, k, n), folder, nil); err == nil || !strings.Contains(err.Error(), "config.json, which says how weights are stored") {
		t.Errorf("%v", err)
	}
}
