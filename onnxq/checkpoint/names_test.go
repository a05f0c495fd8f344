package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
	"onnxquant/rules"
)

// reading is a model with one float tensor of that name, which a node of operator op reads.
func reading(t *testing.T, op, name string, dims ...int64) *onnxq.Model {
	t.Helper()
	w := modeltest.Floats(name, dims...)
	node := modeltest.Node(op, "y", "x w")
	node.Input[1] = name
	if strings.Contains(op, "Simplified") {
		node.Domain = new("com.microsoft")
	}
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{node})))
}

// checkpointOf writes a folder with tensors and a config.json.
func checkpointOf(t *testing.T, config string, list ...stored) string {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "model.safetensors"), list...)
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func plus(x []float32, y float32) []float32 {
	z := make([]float32, len(x))
	for i := range x {
		z[i] = x[i] + y
	}
	return z
}

// Norms of onnxruntime-genai's model builder and of other exports, of models whose norms multiply by 1 + weight.
func TestNorms(t *testing.T) {
	w := ramp(16)
	for _, c := range []struct {
		op, name, in, model string
		want                []float32
	}{
		{"SimplifiedLayerNormalization", "model.layers.3.input_layernorm.weight", "model.layers.3.input_layernorm.weight", "llama", w},
		{"SimplifiedLayerNormalization", "model.layers.3.input_layernorm.weight", "model.layers.3.input_layernorm.weight", "gemma2", plus(w, 1)},
		{"Mul", "model.layers.3.input_layernorm.weight", "model.layers.3.input_layernorm.weight", "gemma2", w},
		{"SimplifiedLayerNormalization", "model.layers.3.attn.q_norm.layernorm.weight", "model.layers.3.self_attn.q_norm.weight", "qwen3", w},
		{"SimplifiedLayerNormalization", "model.layers.3.attn.k_norm.layernorm.weight", "model.layers.3.self_attn.k_norm.weight", "gemma3_text", plus(w, 1)},
		{"SimplifiedLayerNormalization", "model.layers.4.final_norm_layernorm.weight", "model.norm.weight", "nemotron", plus(w, 1)},
		{"LayerNormalization", "model.layers.4.final_norm_layernorm.weight", "model.norm.weight", "nemotron", plus(w, 1)},
		{"LayerNormalization", "vision_tower.vision_model.post_layernorm.weight", "vision_tower.vision_model.post_layernorm.weight", "gemma3", w},
		{"LayerNormalization", "projector.norm.weight", "projector.norm.weight", "gemma3", w},
		{"SimplifiedLayerNormalization", "language_model.model.norm.weight", "language_model.model.norm.weight", "gemma3", plus(w, 1)},
		{"RMSNormalization", "multi_modal_projector.mm_soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight", "gemma3", plus(w, 1)},
		{"Mul", "layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight", "gemma2", w}, // another spelling of its own name
		{"Mul", "model.layers.0.input_layernorm.weight", "layers.0.input_layernorm.weight", "gemma2", w},
		{"SimplifiedLayerNormalization", "model.layers.4.final_norm_layernorm.weight", "model.norm.weight", "gemma4", w},
	} {
		m := reading(t, c.op, c.name, 16)
		folder := checkpointOf(t, `{"model_type": "`+c.model+`"}`, floats(c.in, w, 16))
		if _, err := checkpoint.Read(m, folder, nil); err != nil {
			t.Errorf("%s of %s: %v", c.name, c.model, err)
			continue
		}
		if got := content(t, m, c.name); !same(got, c.want) {
			t.Errorf("%s of %s: %v", c.name, c.model, got[:4])
		}
	}
}

// A file of names gives a constant of an exporter the name of a norm: a Mul reads the sum.
func TestNormByFileOfNames(t *testing.T) {
	m := reading(t, "Mul", "onnx::Mul_7", 16)
	names, err := rules.ParseNames([]byte(`{"onnx::Mul_7": "model.norm.weight"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Read(m, checkpointOf(t, `{"model_type": "gemma2"}`, floats("model.norm.weight", ramp(16), 16)), names); err != nil {
		t.Fatal(err)
	}
	if got := content(t, m, "onnx::Mul_7"); !same(got, plus(ramp(16), 1)) {
		t.Error(got)
	}
}

// A head that the checkpoint lacks is the embedding.
func TestTiedHead(t *testing.T) {
	m := reading(t, "MatMul", "lm_head.MatMul.weight", 8, 20)
	folder := checkpointOf(t, `{}`, floats("model.embed_tokens.weight", ramp(160), 20, 8))
	if _, err := checkpoint.Read(m, folder, nil); err != nil {
		t.Fatal(err)
	}
	if got := content(t, m, "lm_head.MatMul.weight"); !same(got, turned(ramp(160), 20, 8)) {
		t.Errorf("%v", got[:8])
	}
}

// A module of the model may be a part of one of the checkpoint, as in phi3.
func TestPartsOfJoined(t *testing.T) {
	const k = 8
	qkv, up := ramp(24*k), ramp(20*k)
	list := []stored{
		floats("model.layers.0.self_attn.qkv_proj.weight", qkv, 24, k), floats("model.layers.0.self_attn.qkv_proj.bias", ramp(24), 24),
		floats("model.layers.0.mlp.gate_up_proj.weight", up, 20, k),
	}
	for _, c := range []struct {
		op, name    string
		first, rows int
	}{
		{"MatMul", "attn.q_proj.MatMul.weight", 0, 16}, {"MatMul", "attn.k_proj.MatMul.weight", 16, 4}, {"MatMul", "attn.v_proj.MatMul.weight", 20, 4},
		{"MatMul", "mlp.gate_proj.MatMul.weight", 0, 10}, {"MatMul", "mlp.up_proj.MatMul.weight", 10, 10},
	} {
		name := "model.layers.0." + c.name
		m := reading(t, c.op, name, k, int64(c.rows))
		if _, err := checkpoint.Read(m, checkpointOf(t, `{}`, list...), nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all := qkv
		if strings.Contains(name, "mlp") {
			all = up
		}
		if got := content(t, m, name); !same(got, turned(all[c.first*k:(c.first+c.rows)*k], c.rows, k)) {
			t.Errorf("%s: other elements", name)
		}
	}
	name := "model.layers.0.attn.k_proj.Add.bias"
	m := reading(t, "Add", name, 4)
	if _, err := checkpoint.Read(m, checkpointOf(t, `{}`, list...), nil); err != nil {
		t.Fatal(err)
	}
	if got := content(t, m, name); !same(got, ramp(24)[16:20]) {
		t.Errorf("bias %v", got)
	}

	// Codes have parts, too.
	coded, want := gptq("model.layers.0.mlp.gate_up_proj", 32, 16, 16, func(n int) int { return 1 + n%15 })
	name = "model.layers.0.mlp.up_proj.MatMul.weight"
	m = reading(t, "MatMul", name, 16, 16)
	w, err := checkpoint.Read(m, checkpointOf(t, `{"quantization_config": {"bits": 4}}`, coded...), nil)
	if err != nil || w.Coded["GPTQ"] != 1 {
		t.Fatalf("%+v, %v", w, err)
	}
	if got := content(t, m, name); !same(got, turned(want[16*16:], 16, 16)) {
		t.Errorf("%v", got[:8])
	}
}

// in is a model with one float tensor that a node reads as its input 1. Exporters tell the module: in the name of the node, or in
// its scopes.
func in(t *testing.T, op, node, scopes, name string, dims ...int64) *onnxq.Model {
	t.Helper()
	n := modeltest.Node(op, "y", "x w")
	n.Input[1], n.Name = name, new(node)
	if scopes != "" {
		n.MetadataProps = append(n.MetadataProps, &onnxpb.StringStringEntryProto{Key: new("pkg.torch.onnx.name_scopes"), Value: new(scopes)})
	}
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats(name, dims...)}, modeltest.Nodes{n})))
}

// Constants of Optimum and of torch.export, whose own names say nothing.
func TestModuleOfNode(t *testing.T) {
	norm, q := ramp(16), ramp(16*16)
	const scopes = "['', 'wrapped', 'wrapped.model', 'wrapped.model.layers.0.self_attn.q_proj', 'linear']"
	list := []stored{
		floats("vision_tower.post_layernorm.weight", norm, 16),
		floats("model.layers.0.input_layernorm.weight", norm, 16), floats("model.layers.0.self_attn.q_proj.weight", q, 16, 16),
		floats("bert.pooler.dense.weight", q, 16, 16), floats("model.encoder.fc1.weight", q, 16, 16),
	}
	for _, c := range []struct {
		op, node, scopes, name, model string
		dims                          []int64
		want                          []float32 // nil: keeps its value
	}{
		{"Mul", "/model/layers.0/input_layernorm/Mul_1", "", "onnx::Mul_7", "llama", []int64{16}, norm},
		{"Mul", "/model/layers.0/input_layernorm/Mul_1", "", "onnx::Mul_7", "gemma2", []int64{16}, plus(norm, 1)},
		{"Mul", "/wrapped/model/layers.0/input_layernorm/Mul_1", "['', 'wrapped.model.layers.0.input_layernorm', 'mul']", "wrapped.model.layers.0.input_layernorm.weight", "gemma2", []int64{16}, norm},
		{"Mul", "/vision_tower/post_layernorm/Mul_1", "", "onnx::Mul_7", "gemma3", []int64{16}, norm},
		{"Mul", "/model/layers.0/input_layernorm/Mul", "", "two", "llama", nil, nil}, // another constant of the module
		{"Pow", "/model/layers.0/input_layernorm/Pow", "", "two", "llama", []int64{1}, nil},
		{"MatMul", "node_linear_3", scopes, "val_95", "llama", []int64{16, 16}, turned(q, 16, 16)},
		{"MatMul", "node_linear_3", strings.ReplaceAll(scopes, "wrapped", "model"), "val_95", "llama", []int64{16, 16}, turned(q, 16, 16)},
		{"MatMul", "/pooler/dense/MatMul", "", "onnx::MatMul_3", "bert", []int64{16, 16}, turned(q, 16, 16)},
		{"MatMul", "/fc1/MatMul", "", "onnx::MatMul_3", "whisper", []int64{16, 16}, turned(q, 16, 16)},
	} {
		m := in(t, c.op, c.node, c.scopes, c.name, c.dims...)
		_, err := checkpoint.Read(m, checkpointOf(t, `{"model_type": "`+c.model+`"}`, list...), nil)
		switch {
		case c.want == nil && (err == nil || !strings.Contains(err.Error(), "none of its")):
			t.Errorf("%s of %s: %v", c.op, c.node, err)
		case c.want != nil && err != nil:
			t.Errorf("%s of %s: %v", c.op, c.node, err)
		case c.want != nil && !same(content(t, m, c.name), c.want):
			t.Errorf("%s of %s: other elements", c.op, c.node)
		}
	}
}

// A part that fits the encoder as well as the decoder is neither.
func TestModuleUnknown(t *testing.T) {
	m := in(t, "MatMul", "/fc1/MatMul", "", "onnx::MatMul_3", 16, 16)
	w := ramp(16 * 16)
	folder := checkpointOf(t, `{}`, floats("model.encoder.fc1.weight", w, 16, 16), floats("model.decoder.fc1.weight", w, 16, 16))
	if _, err := checkpoint.Read(m, folder, nil); err == nil || !strings.Contains(err.Error(), "none of its") {
		t.Error(err)
	}
}
