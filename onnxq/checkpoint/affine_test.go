package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// mlx has the tensors of a module with codes (7·k + 3·n) mod 16 in groups of 32, and its weight as [N,K].
func mlx(name string, n, k int) (list []stored, want []float32) {
	const group = 32
	var words []byte
	scales, biases := make([]float32, n*k/group), make([]float32, n*k/group)
	for i := range scales {
		scales[i] = float32(i%17-8) / 64
		biases[i] = float32(i%23-11) / 16
	}
	for row := range n {
		for i := 0; i < k; i += 8 {
			word := uint32(0)
			for j := range 8 {
				code, g := (7*(i+j)+3*row)%16, (row*k+i)/group
				word |= uint32(code) << (4 * j)
				want = append(want, float32(code)*scales[g]+biases[g])
			}
			words = binary.LittleEndian.AppendUint32(words, word)
		}
	}
	shape := []int64{int64(n), int64(k / group)}
	return []stored{
		{name + ".weight", "U32", []int64{int64(n), int64(k / 8)}, words},
		stored{name: name + ".scales", typ: "BF16", shape: shape}.with(dtype.BFloat16, scales),
		stored{name: name + ".biases", typ: "BF16", shape: shape}.with(dtype.BFloat16, biases),
	}, want
}

// Codes of MLX are kept, with their biases, in either style. Dequantized, they are the same numbers, and the model has its operators
// again.
func TestAffine(t *testing.T) {
	const n, k = 24, 64
	for style, want := range map[spec.Style]string{spec.NBits: "MatMulNBits+Sub", spec.DQ: "DequantizeLinear+Sub", "": "DequantizeLinear+Sub"} {
		list, values := mlx("model.layers.0.mlp.up_proj", n, k)
		matmul := modeltest.Node("MatMul", "y", "rows onnx::MatMul_7")
		matmul.Name = new("/model/layers.0/mlp/up_proj/MatMul")
		m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(
			modeltest.Tensors{modeltest.Floats("onnx::MatMul_7", k, n), modeltest.Integers("shape", -1, k)},
			modeltest.Nodes{modeltest.Node("Reshape", "rows", "x shape"), matmul},
		)))
		w, err := checkpoint.Read(m, checkpointOf(t, `{"quantization": {"bits": 4, "group_size": 32}}`, list...), nil)
		if err != nil || w.Coded["MLX"] != 1 || len(w.Unused) > 0 {
			t.Fatalf("%+v, %v", w, err)
		}
		out, back := filepath.Join(t.TempDir(), "out.onnx"), filepath.Join(t.TempDir(), "back.onnx")
		p, err := m.Plan(onnxq.Options{Style: style, Bits: 8})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Convert(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		for _, tensor := range r.Tensors {
			if tensor.Name == "onnx::MatMul_7" && (tensor.MaxError != 0 || tensor.Format != spec.Int4) {
				t.Errorf("%s: error %v", tensor.Format, tensor.MaxError)
			}
		}
		quantized, err := onnxq.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer quantized.Close()
		weights := recognize.Weights(quantized.Graph())
		if weights[0].Form != want || weights[0].Block != 32 {
			t.Errorf("style %q: %v, want %s", style, weights[0], want)
		}
		if _, err := restyle.Dequantize(t.Context(), out, back, restyle.Options{}); err != nil {
			t.Fatal(err)
		}
		float, err := onnxq.Open(back)
		if err != nil {
			t.Fatal(err)
		}
		defer float.Close()
		if len(float.Graph().File.Proto.Graph.Node) != len(m.Graph().File.Proto.Graph.Node) {
			t.Errorf("style %q: nodes remain", style)
		}
		found := false
		for _, v := range float.Graph().Values {
			if v.Tensor != nil && len(v.Tensor.GetDims()) == 2 {
				found = true
				if got := content(t, float, v.Name); !same(got, turned(values, n, k)) {
					t.Errorf("style %q: other elements: %v", style, got[:8])
				}
			}
		}
		if !found {
			t.Errorf("style %q: no float weight", style)
		}
	}
}

// A module of MLX may have settings of its own.
func TestModulesOfMLX(t *testing.T) {
	const module = "model.layers.0.mlp.up_proj"
	for config, want := range map[string]string{
		`{"quantization": {"bits": 8, "group_size": 64, "` + module + `": {"bits": 4, "group_size": 32}, "model.norm": false, "model.other": {"bits": -3}}}`: "",
		`{"quantization_config": {"bits": 8, "group_size": 64, "` + module + `": {"bits": 4, "group_size": 32}, "model.norm": false}}`:                       "",
		`{"quantization_config": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}`:                                                                            `mode "mxfp4"`,
		`{"quantization": {"bits": 4, "group_size": 32, "mode": "affine", "` + module + `": true}}`:                                                          "",
		`{"quantization": {"bits": 4, "group_size": 32, "model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64}}}`:                                     "",
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": {"bits": 8, "group_size": 32}}}`:                                                   "must have the shape",
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": {"bits": -4, "group_size": 32}}}`:                                                  "MLX of -4 bits",
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": {"bits": 4, "group_size": 0}}}`:                                                    "groups of 0",
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": {"bits": 1e40}}}`:                                                                  module,
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": {"bits": "4"}}}`:                                                                   module,
		`{"quantization": {"bits": 4, "group_size": 32, "` + module + `": false}}`:                                                                           "is in float",
		`{"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}`:                                                                                   `mode "mxfp4"`,
	} {
		list, _ := mlx(module, 24, 64)
		w, err := checkpoint.Read(wide(t, dtype.Float32, 64, 24), checkpointOf(t, config, list...), nil)
		switch {
		case want == "" && (err != nil || w.Coded["MLX"] != 1):
			t.Errorf("%s: %+v, %v", config, w, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q", config, err, want)
		}
	}
}

// Experts of MLX are modules with the matrices of all.
func TestStackedMLX(t *testing.T) {
	const n, k = 24, 64
	first, values := mlx("model.layers.0.mlp.switch_mlp.down_proj", n, k)
	second, _ := mlx("", n, k)
	for i := range first {
		first[i].shape = slices.Concat([]int64{2}, first[i].shape)
		first[i].data = slices.Concat(first[i].data, second[i].data)
	}
	const config = `{"quantization": {"bits": 8, "group_size": 64, "model.layers.0.mlp.switch_mlp.down_proj": {"bits": 4, "group_size": 32}}}`
	m := gathered(t, "w", n, k, modeltest.Node("MatMul", "y", "chosen x"))
	w, err := checkpoint.Read(m, checkpointOf(t, config, first...), nil)
	if err != nil || w.Decoded["MLX with biases of experts"] != 1 || len(w.Unused) > 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	if got := content(t, m, "w"); !same(got, slices.Concat(values, values)) {
		t.Errorf("other elements: %v", got[:8])
	}
	first[1].shape = []int64{2, n, 1}
	first[1].data = first[1].data[:2*2*n]
	if _, err := checkpoint.Read(gathered(t, "w", n, k, modeltest.Node("MatMul", "y", "chosen x")), checkpointOf(t, config, first...), nil); err == nil || !strings.Contains(err.Error(), "must have the shape [2 24 2]") {
		t.Errorf("error %v", err)
	}
}

// A table that a product reads, too, has names of values with the operator that makes each.
func TestAffineTied(t *testing.T) {
	list, _ := mlx("embed", 24, 64)
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(
		modeltest.Tensors{modeltest.Floats("embed.weight", 24, 64), modeltest.Integers("shape", -1, 64)},
		modeltest.Nodes{
			modeltest.Node("Gather", "e", "embed.weight i"), modeltest.Node("Reshape", "rows", "e shape"),
			modeltest.Node("Gemm", "y", "rows embed.weight", modeltest.IntAttr("transB", 1)),
		},
	)))
	if _, err := checkpoint.Read(m, checkpointOf(t, `{"quantization": {"bits": 4, "group_size": 32}}`, list...), nil); err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(onnxq.Options{Style: spec.NBits, Ops: []string{"Gather", "Gemm"}})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if _, err := p.Convert(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"MatMulNBits": "embed.weight_MatMulNBits_Output", "GatherBlockQuantized": "embed.weight_GatherBlockQuantized_Output"}
	found := 0
	for _, n := range modeltest.Read(t, out).Graph.Node {
		if name := want[n.GetOpType()]; name != "" {
			found++
			if n.Output[0] != name {
				t.Errorf("%s makes %q, want %q", n.GetOpType(), n.Output[0], name)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d operators of ONNX Runtime, want 2", found)
	}
}

// Where the mins of MLX are impossible, weights are quantized anew as the options say: like those of a model with the same floats.
func TestAffineAnew(t *testing.T) {
	for _, c := range []struct {
		typ  dtype.DType
		opts onnxq.Options
		want spec.Format
	}{
		{dtype.Float16, onnxq.Options{Bits: 4, ZeroPoint: true}, spec.Uint4},
		{dtype.Float16, onnxq.Options{Bits: 8, Strict: true}, spec.Int8},
		{dtype.Float16, onnxq.Options{Bits: 8, Target: spec.ORT}, spec.Int8},
		{dtype.Float32, onnxq.Options{Bits: 8, FloatType: spec.Float16}, spec.Int8},
		{dtype.Float32, onnxq.Options{Bits: 8, Style: spec.QDQ}, spec.Int8},
		{dtype.Float32, onnxq.Options{Bits: 8, ScaleType: spec.ScaleFloat16}, spec.Int8},
	} {
		list, _ := mlx("model.layers.0.mlp.up_proj", 64, 128)
		m := wide(t, c.typ, 128, 64)
		if _, err := checkpoint.Read(m, checkpointOf(t, `{"quantization": {"bits": 4, "group_size": 32}}`, list...), nil); err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		convert := func(m *onnxq.Model, name string, opts onnxq.Options) (onnxq.TensorReport, []string) {
			p, err := m.Plan(opts)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Convert(t.Context(), filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			return reportOf(r, "onnx::MatMul_7"), p.Warnings
		}
		got, warnings := convert(m, "out.onnx", c.opts)
		convert(m, "float.onnx", onnxq.Options{Exclude: []string{"*"}})
		float := modeltest.Open(t, filepath.Join(folder, "float.onnx"))
		want, _ := convert(float, "want.onnx", c.opts)
		if got.Format != c.want || got.MaxError != want.MaxError || got.MSE != want.MSE || got.MaxError == 0 || got.Block != want.Block {
			t.Errorf("%+v: %s, error %v, want %s, %v", c, got.Format, got.MaxError, c.want, want.MaxError)
		}
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "quantized anew") }) {
			t.Errorf("%+v: warnings %q", c, warnings)
		}
	}
}

// reportOf is the report of a tensor, or empty.
func reportOf(r *onnxq.Report, name string) (found onnxq.TensorReport) {
	for _, t := range r.Tensors {
		if t.Name == name {
			found = t
		}
	}
	return found
}

// A Sub of another domain subtracts no mins.
func TestAffineSub(t *testing.T) {
	list, _ := mlx("model.layers.0.mlp.up_proj", 24, 64)
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(
		modeltest.Tensors{modeltest.Floats("model.layers.0.mlp.up_proj.weight", 64, 24), modeltest.Integers("shape", -1, 64)},
		modeltest.Nodes{modeltest.Node("Reshape", "rows", "x shape"), modeltest.Node("MatMul", "y", "rows model.layers.0.mlp.up_proj.weight")},
	)))
	if _, err := checkpoint.Read(m, checkpointOf(t, `{"quantization": {"bits": 4, "group_size": 32}}`, list...), nil); err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(onnxq.Options{Style: spec.NBits, MinElements: 1})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if _, err := p.Convert(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]string{"": "MatMulNBits+Sub", "other": "MatMulNBits"} {
		quantized := modeltest.Read(t, out)
		for _, n := range quantized.Graph.Node {
			if n.GetOpType() == "Sub" {
				n.Domain = new(domain)
			}
		}
		if weights := recognize.Weights(modeltest.Graph(t, quantized)); len(weights) != 1 || weights[0].Form != want {
			t.Errorf("%q: %v, want %s", domain, weights, want)
		}
	}
}

// Weights that lie as [N,K] in the checkpoint and in the output are read so, and have the codes of a model with the same floats.
func TestTurned(t *testing.T) {
	m := wide(t, dtype.Float32, 64, 24)
	if _, err := checkpoint.Read(m, checkpointOf(t, `{}`, floats("model.layers.0.mlp.up_proj.weight", ramp(24*64), 24, 64)), nil); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	convert := func(m *onnxq.Model, name string, opts onnxq.Options) string {
		p, err := m.Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(folder, name)
		if _, err := p.Convert(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	direct := modeltest.Read(t, convert(m, "direct.onnx", onnxq.Options{Style: spec.NBits, ZeroPoint: true, Block: 16}))
	float := modeltest.Open(t, convert(m, "float.onnx", onnxq.Options{Format: spec.Float}))
	want := modeltest.Read(t, convert(float, "want.onnx", onnxq.Options{Style: spec.NBits, ZeroPoint: true, Block: 16}))
	for i, tensor := range direct.Graph.Initializer {
		if other := want.Graph.Initializer[i]; !bytes.Equal(tensor.RawData, other.RawData) || tensor.GetName() != other.GetName() || len(tensor.RawData) == 0 {
			t.Errorf("%s differs from %s", tensor.GetName(), other.GetName())
		}
	}
}
