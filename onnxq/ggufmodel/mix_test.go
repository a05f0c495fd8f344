package ggufmodel

import (
	"slices"
	"testing"

	"onnxquant/formats/gguf"
	"onnxquant/internal/graph"
)

func TestMixes(t *testing.T) {
	chosen := func(mix string, r role, layer int) gguf.Type {
		m, err := mixNamed(mix)
		if err != nil {
			t.Fatal(err)
		}
		typ, _ := m.choose(r, layer, 32, false)
		return typ
	}
	// Of 32 layers, Q4_K_M gives more bits to these.
	var outer []int
	for layer := range 32 {
		if chosen("q4_k_m", downRole, layer) == gguf.Q6_K {
			outer = append(outer, layer)
		}
	}
	if want := []int{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31}; !slices.Equal(outer, want) {
		t.Errorf("layers %v, want %v", outer, want)
	}
	for _, c := range []struct {
		mix   string
		role  role
		layer int
		want  gguf.Type
	}{
		{"Q4_K_M", otherRole, 0, gguf.Q4_K}, {"Q4_K_M", outputRole, -1, gguf.Q6_K}, {"Q4_K_M", embeddingRole, -1, gguf.Q4_K},
		{"Q4_K_M", downRole, -1, gguf.Q4_K}, {"Q4_K_M", attentionRole, -1, gguf.Q5_K},
		{"Q4_K_S", valueRole, 3, gguf.Q5_K}, {"Q4_K_S", valueRole, 4, gguf.Q4_K}, {"Q3_K_M", valueRole, 1, gguf.Q5_K},
		{"Q3_K_M", downRole, 2, gguf.Q4_K}, {"Q3_K_M", downRole, 1, gguf.Q5_K}, {"Q2_K", projectRole, 9, gguf.Q3_K},
		{"Q8_0", outputRole, -1, gguf.Q8_0}, {"F16", outputRole, -1, gguf.F16}, {"Q4_0", outputRole, -1, gguf.Q6_K},
	} {
		if got := chosen(c.mix, c.role, c.layer); got != c.want {
			t.Errorf("%s, %s of layer %d: %v, want %v", c.mix, roleNames[c.role], c.layer, got, c.want)
		}
	}
	for name, want := range map[string]role{
		"blk.3.attn_v.weight": valueRole, "model.layers.0.self_attn.v_proj.weight": valueRole, "/blocks.0/qkv/MatMul": attentionRole,
		"/h.7/mlp/c_proj/MatMul": downRole, "lm_head.MatMul.weight": outputRole, "output.weight": outputRole, "wpe.weight": positionRole,
		"cos_cache": positionRole, "encoder.layer.0.output.dense.weight": otherRole, "values": otherRole,
	} {
		if got := roleOf(&graph.Graph{}, []string{name}, nil); got != want {
			t.Errorf("%s is %q, want %q", name, roleNames[got], roleNames[want])
		}
	}
	for name, want := range map[string]int{"blk.12.attn_v.weight": 12, "/model/layers.3/mlp/MatMul": 3, "h.0.x": 0, "w3": -1} {
		if got := layerOf([]string{"other", name}); got != want {
			t.Errorf("%s is of layer %d, want %d", name, got, want)
		}
	}
	for _, c := range []struct {
		typ, own gguf.Type
		k        int64
		want     gguf.Type
	}{
		{gguf.Q4_K, gguf.F32, 512, gguf.Q4_K}, {gguf.Q4_K, gguf.F32, 96, gguf.Q5_0}, {gguf.Q6_K, gguf.F16, 96, gguf.Q8_0},
		{gguf.Q4_K, gguf.F32, 40, gguf.F16}, {gguf.Q8_0, gguf.BF16, 40, gguf.BF16}, {gguf.Q2_K, gguf.F32, 32, gguf.Q4_0},
	} {
		if got := fitting(c.typ, c.own, c.k); got != c.want {
			t.Errorf("%v for rows of %d is %v, want %v", c.typ, c.k, got, c.want)
		}
	}
}
