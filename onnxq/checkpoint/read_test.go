package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
)

// stored is a tensor to write.
type stored struct {
	name, typ string
	shape     []int64
	data      []byte
}

func floats(name string, x []float32, shape ...int64) stored {
	return stored{name: name, typ: "F32", shape: shape}.with(dtype.Float32, x)
}

func (s stored) with(typ dtype.DType, x []float32) stored {
	s.data = make([]byte, len(x)*int(typ.Bits()/8))
	typ.Encode(s.data, x)
	return s
}

// write writes a safetensors file.
func write(t testing.TB, path string, list ...stored) {
	t.Helper()
	header, data := map[string]any{}, []byte{}
	for _, s := range list {
		if s.shape == nil {
			s.shape = []int64{}
		}
		header[s.name] = map[string]any{"dtype": s.typ, "shape": s.shape, "data_offsets": []int{len(data), len(data) + len(s.data)}}
		data = append(data, s.data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, append(b, data...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ramp has n different numbers.
func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%251) - 100
	}
	return x
}

// turned transposes a matrix.
func turned(x []float32, rows, columns int) []float32 {
	y := make([]float32, len(x))
	for i := range rows {
		for k := range columns {
			y[k*rows+i] = x[i*columns+k]
		}
	}
	return y
}

// model has a MatMul, named by the module, a Gemm whose weight has the name of the parameter, and an embedding.
func model(t *testing.T, typ dtype.DType, n int64) *onnxq.Model {
	return wide(t, typ, 16, n)
}

// wide is a model whose MatMul reads [k,n].
func wide(t *testing.T, typ dtype.DType, k, n int64) *onnxq.Model {
	matmul := modeltest.Node("MatMul", "m", "e onnx::MatMul_7")
	matmul.Name = new("/model/layers.0/mlp/up_proj/MatMul")
	gemm := modeltest.Node("Gemm", "y", "m head.weight", modeltest.IntAttr("transB", 1))
	m := modeltest.Model(modeltest.Tensors{
		modeltest.Floats("embed.weight", 10, k), modeltest.Floats("onnx::MatMul_7", k, n), modeltest.Floats("head.weight", 5, n),
	}, modeltest.Nodes{modeltest.Node("Gather", "e", "embed.weight i"), matmul, gemm})
	for _, w := range m.Proto.Graph.Initializer {
		w.DataType = new(int32(typ))
		w.FloatData, w.RawData = nil, make([]byte, w.Dims[0]*w.Dims[1]*typ.Bits()/8)
	}
	return modeltest.Open(t, modeltest.Write(t, m))
}

// content is what a tensor of the model has, in order and in pieces.
func content(t *testing.T, m *onnxq.Model, name string) []float32 {
	t.Helper()
	for _, v := range m.Graph().Values {
		if v.Path != name {
			continue
		}
		p, err := m.Graph().File.Payload(v.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := io.ReadAll(io.NewSectionReader(p, 0, p.Size()))
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, len(whole)-7)
		if n, err := p.ReadAt(part, 3); n != len(part) || !bytes.Equal(part, whole[3:len(whole)-4]) {
			t.Errorf("%s: other bytes in a part: %v", name, err)
		}
		typ := dtype.DType(v.Tensor.GetDataType())
		x := make([]float32, len(whole)/int(typ.Bits()/8))
		typ.Decode(x, whole)
		return x
	}
	t.Fatalf("no tensor %s", name)
	return nil
}

func same(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Weights are found by name and by module, in several files, transposed where the model has them so; of all types.
func TestRead(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, n := range []int64{24, 16} { // a square weight of a module is transposed, too
			folder := t.TempDir()
			up, head := ramp(16*int(n)), ramp(5*int(n))
			write(t, filepath.Join(folder, "model-00001-of-00002.safetensors"), floats("model.layers.0.mlp.up_proj.weight", up, n, 16), floats("more", ramp(1), 1))
			write(t, filepath.Join(folder, "model-00002-of-00002.safetensors"), stored{name: "head.weight", typ: "BF16", shape: []int64{5, n}}.with(dtype.BFloat16, head))
			index := `{"weight_map": {"model.layers.0.mlp.up_proj.weight": "model-00001-of-00002.safetensors", "head.weight": "model-00002-of-00002.safetensors"}}`
			if err := os.WriteFile(filepath.Join(folder, "model.safetensors.index.json"), []byte(index), 0o600); err != nil {
				t.Fatal(err)
			}
			m := model(t, typ, n)
			w, err := checkpoint.Read(m, folder, nil)
			if err != nil {
				t.Fatal(err)
			}
			if w.Of != 3 || len(w.Tensors) != 2 || w.Used != 2 || fmt.Sprint(w.Unused) != "[more]" {
				t.Errorf("%+v", w)
			}
			if got := content(t, m, "onnx::MatMul_7"); !same(got, turned(up, int(n), 16)) {
				t.Errorf("%v, %d: the weight of the module: %v", typ, n, got[:8])
			}
			if got := content(t, m, "head.weight"); !same(got, head) {
				t.Errorf("%v, %d: the weight of the same name: %v", typ, n, got[:8])
			}
		}
	}
}

// Float8 is multiplied by its scales: one, one for each row, one for each block.
func TestScales(t *testing.T) {
	const rows, columns = 200, 16
	codes := make([]byte, rows*columns)
	for i := range codes {
		codes[i] = byte(i % 120)
	}
	for _, c := range []struct {
		end   string
		shape []int64
		of    func(row int) int
	}{
		{"_scale", []int64{}, func(int) int { return 0 }},
		{"_scale", []int64{rows, 1}, func(row int) int { return row }},
		{"_scale_inv", []int64{2, 1}, func(row int) int { return row / 128 }},
	} {
		count := 1
		for _, n := range c.shape {
			count *= int(n)
		}
		scales := make([]float32, count)
		for i := range scales {
			scales[i] = 0.25 * float32(i+1)
		}
		want := make([]float32, len(codes))
		for i, code := range codes {
			want[i] = fp8.E4M3FN.Decode(code) * scales[c.of(i/columns)]
		}
		path := filepath.Join(t.TempDir(), "w.safetensors")
		const name = "model.layers.0.mlp.up_proj.weight"
		write(t, path, stored{name, "F8_E4M3", []int64{rows, columns}, codes}, floats(name+c.end, scales, c.shape...))
		m := model(t, dtype.Float32, rows)
		w, err := checkpoint.Read(m, path, nil)
		if err != nil || len(w.Unused) > 0 {
			t.Fatalf("%+v, %v", w, err)
		}
		if got := content(t, m, "onnx::MatMul_7"); !same(got, turned(want, rows, columns)) {
			t.Errorf("%s %v: other values", c.end, c.shape)
		}
	}
}

// A module that holds several is made of its parts.
func TestJoined(t *testing.T) {
	node := modeltest.Node("MatMul", "y", "x w")
	w := modeltest.Floats("model.layers.0.attn.qkv_proj.MatMul.weight", 8, 12)
	node.Input[1] = w.GetName()
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{node})))
	path := filepath.Join(t.TempDir(), "w.safetensors")
	all := ramp(12 * 8)
	write(t, path, floats("model.layers.0.self_attn.q_proj.weight", all[:6*8], 6, 8),
		floats("model.layers.0.self_attn.k_proj.weight", all[6*8:9*8], 3, 8), floats("model.layers.0.self_attn.v_proj.weight", all[9*8:], 3, 8))
	if _, err := checkpoint.Read(m, path, nil); err != nil {
		t.Fatal(err)
	}
	if got := content(t, m, w.GetName()); !same(got, turned(all, 12, 8)) {
		t.Errorf("%v", got[:12])
	}
}

func TestReadRefuses(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj."
	for want, list := range map[string][]stored{
		"none of its 1 tensors is called like one": {floats("x", ramp(1), 1)},
		"has the shape [3 16]; the model's":        {floats(name+"weight", ramp(48), 3, 16)},
		"its type, I32, is no float":               {{name + "weight", "I32", []int64{24, 16}, make([]byte, 24*16*4)}},
		"it needs qzeros and scales":               {{name + "qweight", "I32", []int64{2, 24}, make([]byte, 2*24*4)}},
		"it needs weight, weight.quant_map of 16":  {{name + "weight", "U8", []int64{192, 1}, make([]byte, 192)}, floats(name+"weight.absmax", ramp(6), 6)},
		"qzeros of shape [1 5] do not fit 1 groups of 24 columns": {
			{name + "qweight", "I32", []int64{2, 24}, make([]byte, 2*24*4)}, {name + "qzeros", "I32", []int64{1, 5}, make([]byte, 20)}, floats(name+"scales", ramp(24), 1, 24)},
		"is neither GPTQ's nor AWQ's": {
			{name + "qweight", "I32", []int64{2, 7}, make([]byte, 2*7*4)}, {name + "qzeros", "I32", []int64{1, 3}, make([]byte, 12)}, floats(name+"scales", ramp(24), 1, 24)},
		"qzeros of shape [0 3] do not fit 0 groups": {
			{name + "qweight", "I32", []int64{0, 24}, nil}, {name + "qzeros", "I32", []int64{0, 3}, nil}, floats(name+"scales", nil, 0, 24)},
		"g_idx has group 7 of 1": {
			{name + "qweight", "I32", []int64{2, 24}, make([]byte, 2*24*4)}, {name + "qzeros", "I32", []int64{1, 3}, make([]byte, 12)}, floats(name+"scales", ramp(24), 1, 24),
			{name + "g_idx", "I32", []int64{16}, bytes.Repeat([]byte{7, 0, 0, 0}, 16)}},
		"g_idx of type F32 and shape [16]": {
			{name + "qweight", "I32", []int64{2, 24}, make([]byte, 2*24*4)}, {name + "qzeros", "I32", []int64{1, 3}, make([]byte, 12)}, floats(name+"scales", ramp(24), 1, 24),
			floats(name+"g_idx", ramp(16), 16)},
		"g_idx of type I32 and shape [15]": {
			{name + "qweight", "I32", []int64{2, 24}, make([]byte, 2*24*4)}, {name + "qzeros", "I32", []int64{1, 3}, make([]byte, 12)}, floats(name+"scales", ramp(24), 1, 24),
			{name + "g_idx", "I32", []int64{15}, make([]byte, 60)}},
		"has no part of shape [16 24] for": {floats("model.layers.0.mlp.gate_up_proj.weight", ramp(1))},
		"MLX of 0 bits": {
			{name + "weight", "U32", []int64{24, 2}, make([]byte, 24*2*4)}, floats(name+"scales", ramp(24), 24, 1), floats(name+"biases", ramp(24), 24, 1)},
		"does not fit 192 bytes": {
			{name + "weight", "U8", []int64{192, 1}, make([]byte, 192)}, floats(name+"weight.absmax", ramp(6), 6), floats(name+"weight.quant_map", ramp(16), 16),
			{name + "weight.quant_state.bitsandbytes__nf4", "U8", []int64{37}, []byte(`{"blocksize": 64, "shape": [24, 999]}`)}},
		"its quant_state: ": {
			{name + "weight", "U8", []int64{192, 1}, make([]byte, 192)}, floats(name+"weight.absmax", ramp(6), 6), floats(name+"weight.quant_map", ramp(16), 16),
			{name + "weight.quant_state.bitsandbytes__nf4", "U8", []int64{1}, []byte(`{`)}},
		"want words of type I32": {
			{name + "weight_packed", "I8", []int64{24, 2}, make([]byte, 48)}, floats(name+"weight_scale", ramp(24), 24, 1)},
		"it needs one number, " + name + "weight_global_scale": {
			{name + "weight_packed", "U8", []int64{24, 8}, make([]byte, 192)}, floats(name+"weight_scale", ramp(24), 24, 1)},
		"do not fit [24 16]": {{name + "weight", "F8_E4M3", []int64{24, 16}, make([]byte, 24*16)}, floats(name+"weight_scale", ramp(5), 5)},
	} {
		path := filepath.Join(checkpointOf(t, `{"quantization_config": {}}`, list...), "model.safetensors")
		if _, err := checkpoint.Read(model(t, dtype.Float32, 24), path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	folder := t.TempDir()
	for want, path := range map[string]string{"no such file or folder": filepath.Join(folder, "none"), "the folder has no .safetensors files": folder} {
		if _, err := checkpoint.Read(model(t, dtype.Float32, 24), path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	index := filepath.Join(folder, "model.safetensors.index.json")
	if err := os.WriteFile(index, []byte(`{"weight_map": {"a": "../../secret.safetensors"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Read(model(t, dtype.Float32, 24), folder, nil); err == nil || !strings.Contains(err.Error(), "is not the name of a file beside it") {
		t.Errorf("a file elsewhere: %v", err)
	}

	// What does not fit the tensor's type is found when it is read.
	path := filepath.Join(t.TempDir(), "w.safetensors")
	big := ramp(24 * 16)
	big[77] = 70000
	write(t, path, floats(name+"weight", big, 24, 16))
	m := model(t, dtype.Float16, 24)
	if _, err := checkpoint.Read(m, path, nil); err != nil {
		t.Fatal(err)
	}
	refused(t, m, "holds 70000, which FLOAT16 does not reach")
}

// refused checks the error of a conversion; "": there is none.
func refused(t *testing.T, m *onnxq.Model, want string) {
	t.Helper()
	p, err := m.Plan(onnxq.Options{Bits: 8})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Convert(t.Context(), filepath.Join(t.TempDir(), "out.onnx")); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Files are those that Read opens: also the shards of an index, and what lies beside them and says how to read them.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"model.safetensors.index.json": `{"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}`,
		"1.safetensors":                "", "2.safetensors": "", "3.safetensors": "", "config.json": "{}", "tokenizer.json": "{}", "w.gguf": "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sharded := "model.safetensors.index.json 1.safetensors 2.safetensors config.json"
	for name, want := range map[string]string{"model.safetensors.index.json": sharded, "": sharded, "3.safetensors": "3.safetensors config.json", "w.gguf": "w.gguf"} {
		files, err := checkpoint.Files(filepath.Join(folder, name))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if got := strings.Join(files, " "); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	if _, err := checkpoint.Files(filepath.Join(folder, "none")); err == nil {
		t.Error("no error")
	}
}
