package preset_test

import (
	"fmt"
	"strings"
	"testing"

	"onnxquant/internal/preset"
	"onnxquant/internal/transformer"
)

// Experts have the same bits in all layers, whatever their names.
func TestPrecisionOfExperts(t *testing.T) {
	p, err := preset.Load("genai")
	if err != nil {
		t.Fatal(err)
	}
	precision, err := p.Outputs[0].Precision([]preset.Tensor{
		{Name: "model.layers.0.moe.experts.down_proj.weight", Consumers: []string{"com.microsoft.MoE:4"}},
		{Name: "model.layers.0.mlp.down_proj.weight", Consumers: []string{"MatMul:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := precision.For("model.layers.0.moe.experts.down_proj.weight"); ok && o.Bits != nil {
		t.Errorf("experts get %d bits", *o.Bits)
	}
	if o, ok := precision.For("model.layers.0.mlp.down_proj.weight"); !ok || *o.Bits != 8 {
		t.Errorf("a product in a sensitive layer gets %+v, want 8 bits", o)
	}
}

// Settings go to weights by their role, and by their names if no weight has one.
func TestPrecision(t *testing.T) {
	p, err := preset.Load("genai")
	if err != nil {
		t.Fatal(err)
	}
	const layers = 8 // of which 0, 3, 6 and 7 get more bits
	var named, structured []preset.Tensor
	for i := range layers {
		name := fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i)
		named = append(named, preset.Tensor{Name: name})
		structured = append(structured, preset.Tensor{Name: fmt.Sprintf("onnx::MatMul_%d", i), Role: transformer.Weight{Role: transformer.Down, Layer: i, Layers: layers}})
	}
	misnamed := append(structured, preset.Tensor{Name: "model.layers.0.v_proj.weight"})
	for kind, tensors := range map[string][]preset.Tensor{"names": named, "structure": structured, "names that the structure does not bear out": misnamed} {
		precision, err := p.Outputs[0].Precision(tensors)
		if err != nil {
			t.Fatal(err)
		}
		for i, tensor := range tensors {
			want := i == 0 || i == 3 || i == 6 || i == 7
			o, got := precision.For(tensor.Name)
			if got != want || got && *o.Bits != 8 {
				t.Errorf("%s: %s gets 8 bits: %v, want %v", kind, tensor.Name, got, want)
			}
		}
	}
}

// With float16 in a branch, ONNX Runtime computes wrongly at accuracy_level 4. The last flag counts.
func TestLevelInBranches(t *testing.T) {
	p, err := preset.Load("transformers.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		if !strings.Contains(o.File, "q4f16") && !strings.Contains(o.File, "q2f16") {
			continue
		}
		for op, want := range map[string]string{"If": "1", "MatMul": "4"} {
			flags, level := o.FlagsFor("decoder_model_merged.onnx", "whisper", map[string]bool{op: true}), ""
			for i, flag := range flags {
				if flag == "--accuracy-level" {
					level = flags[i+1]
				}
			}
			if level != want {
				t.Errorf("%s with %s: level %s, want %s", o.File, op, level, want)
			}
		}
	}
}
