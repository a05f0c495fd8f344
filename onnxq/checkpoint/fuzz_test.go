package checkpoint_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
)

// layouts are weights of a module as each library writes them.
func layouts(name string, n, k int64) [][]stored {
	zeros := func(end, typ string, bytes int64, shape ...int64) stored {
		for _, d := range shape {
			bytes *= d
		}
		return stored{name + end, typ, shape, make([]byte, bytes)}
	}
	down, _ := gptq(name, int(n), int(k), 16, func(int) int { return 8 })
	state := `{"quant_type": "nf4", "blocksize": 64, "shape": [24, 64], "nested_blocksize": 256, "nested_offset": 0.5}`
	return [][]stored{
		append(down, zeros(".g_idx", "I32", 4, k)),
		{zeros(".qweight", "I32", 4, k, n/8), zeros(".qzeros", "I32", 4, 4, n/8), zeros(".scales", "F16", 2, 4, n)},
		{zeros(".weight_packed", "I32", 4, n, k/8), zeros(".weight_scale", "F16", 2, n, 4), zeros(".weight_zero_point", "I32", 4, n/8, 4),
			{name + ".weight_shape", "I64", []int64{2}, []byte{byte(n), 0, 0, 0, 0, 0, 0, 0, byte(k), 0, 0, 0, 0, 0, 0, 0}}},
		{zeros(".weight", "U8", 1, n, k/2), zeros(".weight_scale", "F8_E4M3", 1, n, k/16), {name + ".weight_scale_2", "F32", []int64{}, []byte{0, 0, 128, 63}}},
		{zeros(".weight", "I8", 1, n, k), zeros(".weight_scale", "F16", 2, n, 1), zeros(".weight_zero_point", "I8", 1, n, 1)},
		{zeros(".weight", "I8", 1, n, k), zeros(".SCB", "F32", 4, n)},
		{zeros(".weight", "U32", 4, n, k/8), zeros(".scales", "F16", 2, n, 4), zeros(".biases", "F16", 2, n, 4)},
		{zeros(".weight", "F8_E4M3", 1, n, k), zeros(".weight_scale", "F32", 4, n, 1)},
		{zeros(".weight", "U8", 1, n*k/2, 1), zeros(".weight.quant_map", "F32", 4, 16), zeros(".weight.absmax", "U8", 1, n*k/64), zeros(".weight.nested_absmax", "F32", 4, 1),
			zeros(".weight.nested_quant_map", "F32", 4, 256), {name + ".weight.quant_state.bitsandbytes__nf4", "U8", []int64{int64(len(state))}, []byte(state)}},
	}
}

// Whatever the files hold, reading and converting end with a result or an error.
func FuzzRead(f *testing.F) {
	const n, k = 24, 64
	for _, list := range layouts("model.layers.0.mlp.up_proj", n, k) {
		path := filepath.Join(f.TempDir(), "w.safetensors")
		write(f, path, list...)
		file, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file, `{"quantization_config": {"bits": 4, "group_size": 16}}`)
		f.Add(file, `{"quantization": {"bits": 4, "group_size": 16}, "model_type": "gemma"}`)
	}
	f.Fuzz(func(t *testing.T, file []byte, config string) {
		folder := t.TempDir()
		for name, text := range map[string][]byte{"w.safetensors": file, "config.json": []byte(config)} {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := wide(t, dtype.Float32, k, n)
		if _, err := checkpoint.Read(m, folder, nil); err != nil {
			return
		}
		for _, v := range m.Graph().Values {
			p, err := m.Graph().File.Payload(v.Tensor)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, io.NewSectionReader(p, 0, p.Size()))
		}
		p, err := m.Plan(onnxq.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Convert(t.Context(), filepath.Join(folder, "out.onnx"))
	})
}
