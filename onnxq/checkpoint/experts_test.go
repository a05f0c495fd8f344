package checkpoint_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/checkpoint"
)

// mixture is a model with a MoE of three experts of 4 inputs and 2 inner channels, and its biases. fusion is its swiglu_fusion.
func mixture(t *testing.T, fusion int64) *onnxq.Model {
	moe := modeltest.Node("MoE", "y", "x r w1 b1 w2 b2", modeltest.IntAttr("swiglu_fusion", fusion), modeltest.StringAttr("activation_type", "swiglu"), modeltest.IntAttr("k", 2))
	moe.Domain, moe.Name = new("com.microsoft"), new("/model/layers.1/moe/MoE")
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{
		modeltest.Floats("w1", 3, 4, 4), modeltest.Floats("b1", 3, 4), modeltest.Floats("w2", 3, 4, 2), modeltest.Floats("b2", 3, 4),
	}, modeltest.Nodes{modeltest.Node("Identity", "r", "x"), moe})))
}

// each has matrices and biases of three experts, under names for gates, values and the last product.
func each(module string, names ...string) (list []stored) {
	at := float32(0)
	for e := range 3 {
		for i, name := range names {
			n, k := int64(2), int64(4)
			if i == 2 {
				n, k = k, n
			}
			x := make([]float32, 8)
			for j := range x {
				x[j], at = at, at+1
			}
			list = append(list, floats(fmt.Sprintf("%s.%d.%s.weight", module, e, name), x, n, k),
				floats(fmt.Sprintf("%s.%d.%s.bias", module, e, name), x[:n], n))
		}
	}
	return list
}

// Experts of a checkpoint get into the stacks of a MoE, in the order that it has gates and values in.
func TestExperts(t *testing.T) {
	for _, c := range []struct {
		fusion int64
		list   []stored
		rows   []float32 // first element of each row of the first expert
	}{
		{2, each("model.layers.1.mlp.experts", "gate_proj", "up_proj", "down_proj"), []float32{0, 4, 8, 12}},
		{1, each("model.layers.1.block_sparse_moe.experts", "w1", "w3", "w2"), []float32{0, 8, 4, 12}},
	} {
		m := mixture(t, c.fusion)
		w, err := checkpoint.Read(m, checkpointOf(t, `{}`, c.list...), nil)
		if err != nil || len(w.Tensors) != 4 || len(w.Unused) > 0 {
			t.Fatalf("%+v, %v", w, err)
		}
		fc1, fc2, biases := content(t, m, "w1"), content(t, m, "w2"), content(t, m, "b1")
		if got := []float32{fc1[0], fc1[4], fc1[8], fc1[12]}; !slices.Equal(got, c.rows) {
			t.Errorf("rows begin with %v, want %v", got, c.rows)
		}
		if fc2[0] != 16 || fc2[8] != 40 {
			t.Errorf("fc2 begins with %v, the second expert with %v", fc2[0], fc2[8])
		}
		first := c.list[0]
		if !strings.Contains(first.name, "w1") && !slices.Equal(biases[:4], []float32{0, 1, 8, 9}) || strings.Contains(first.name, "w1") && !slices.Equal(biases[:4], []float32{0, 8, 1, 9}) {
			t.Errorf("biases are %v", biases[:4])
		}
	}
}

// Experts that do not fit are errors.
func TestOtherExperts(t *testing.T) {
	list := each("model.layers.1.mlp.experts", "gate_proj", "up_proj", "down_proj")
	wide := floats(list[0].name, make([]float32, 12), 3, 4)
	for want, list := range map[string][]stored{
		"has 2 experts with gate_proj, the model 3": list[:12],
		"differ in shape": append([]stored{wide}, list[1:]...),
	} {
		if _, err := checkpoint.Read(mixture(t, 1), checkpointOf(t, `{}`, list...), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// gathered is a model in which a Gather takes matrices of a stack of two, and nodes read them: from "chosen" and "x" to "y".
func gathered(t *testing.T, name string, n, k int64, nodes ...*onnxpb.NodeProto) *onnxq.Model {
	gather := modeltest.Node("Gather", "chosen", name+" i")
	gather.MetadataProps = []*onnxpb.StringStringEntryProto{{
		Key: new("pkg.torch.onnx.name_scopes"), Value: new("['', 'model', 'model.layers.0.mlp', 'model.layers.0.mlp.experts', 'bmm']"),
	}}
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(
		modeltest.Tensors{modeltest.Floats(name, 2, n, k), modeltest.Integers("shape", 1, n, k), modeltest.Integers("axes", 0)}, append(modeltest.Nodes{gather}, nodes...))))
}

// Models of gpt-oss that a Gather reads have gates and values in turn, also where the checkpoint has them apart; others have them in halves.
func TestGatheredGates(t *testing.T) {
	list := each("model.layers.0.mlp.experts", "gate_proj", "up_proj", "down_proj")[:12] // of two experts
	for config, want := range map[string][]float32{`{"model_type": "gpt_oss"}`: {0, 8, 4, 12}, `{"model_type": "qwen3_moe"}`: {0, 4, 8, 12}} {
		m := gathered(t, "w", 4, 4, modeltest.Node("MatMul", "y", "chosen x"))
		if _, err := checkpoint.Read(m, checkpointOf(t, config, list...), nil); err != nil {
			t.Fatal(err)
		}
		if got := content(t, m, "w"); !slices.Equal([]float32{got[0], got[4], got[8], got[12]}, want) {
			t.Errorf("%s: rows begin with %v, want %v", config, got, want)
		}
	}
}

// The reader of square experts tells which axis has the rows; without one that tells, they are an error.
func TestSquareExperts(t *testing.T) {
	const side = 4
	node := modeltest.Node
	turn := modeltest.IntsAttr("perm", 0, 2, 1)
	var apart []stored
	for e := range 2 {
		apart = append(apart, floats(fmt.Sprintf("model.layers.0.mlp.experts.%d.down_proj.weight", e), plus(ramp(side*side), float32(100*e)), side, side))
	}
	whole := []stored{
		floats("model.layers.0.mlp.experts.gate_up_proj", ramp(2*side*2*side), 2, side, 2*side),
		floats("model.layers.0.mlp.experts.down_proj", slices.Concat(ramp(side*side), plus(ramp(side*side), 100)), 2, side, side),
	}
	unclear := []stored{whole[1]}
	for name, c := range map[string]struct {
		nodes     modeltest.Nodes
		list      []stored
		turned    bool // against the checkpoint
		want      string
		modelName string
	}{
		"second factor":             {nodes: modeltest.Nodes{node("MatMul", "y", "x chosen")}, list: apart, turned: true},
		"first factor":              {nodes: modeltest.Nodes{node("MatMul", "y", "chosen x")}, list: apart},
		"Cast":                      {nodes: modeltest.Nodes{node("Cast", "c", "chosen", modeltest.IntAttr("to", 1)), node("MatMul", "y", "x c")}, list: apart, turned: true},
		"Transpose":                 {nodes: modeltest.Nodes{node("Transpose", "c", "chosen", turn), node("MatMul", "y", "x c")}, list: apart},
		"Squeeze":                   {nodes: modeltest.Nodes{node("Squeeze", "c", "chosen axes"), node("MatMul", "y", "x c")}, list: apart, turned: true},
		"gpt-oss":                   {nodes: modeltest.Nodes{node("MatMul", "y", "x chosen")}, list: whole},
		"gpt-oss, Transpose":        {nodes: modeltest.Nodes{node("Transpose", "c", "chosen", turn), node("MatMul", "y", "x c")}, list: whole, turned: true},
		"unknown":                   {nodes: modeltest.Nodes{node("Reshape", "c", "chosen shape"), node("MatMul", "y", "x c")}, list: apart, want: "are square"},
		"no other matrix":           {nodes: modeltest.Nodes{node("MatMul", "y", "x chosen")}, list: unclear, want: "are square"},
		"the name of the model's":   {nodes: modeltest.Nodes{node("Reshape", "c", "chosen shape"), node("MatMul", "y", "x c")}, list: whole, modelName: "model.layers.0.mlp.experts.down_proj"},
		"another name of the block": {nodes: modeltest.Nodes{node("Transpose", "c", "chosen", turn), node("MatMul", "y", "x c")}, list: whole, turned: true, modelName: "model.layers.0.moe.experts.down_proj"},
	} {
		value := cmp.Or(c.modelName, "w")
		m := gathered(t, value, side, side, c.nodes...)
		w, err := checkpoint.Read(m, checkpointOf(t, `{}`, c.list...), nil)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), value) {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil || len(w.Tensors) != 1 {
			t.Fatalf("%s: %+v, %v", name, w, err)
		}
		second, row := float32(1), float32(side)
		if c.turned {
			second, row = row, second
		}
		if got := content(t, m, value); got[1]-got[0] != second || got[side]-got[0] != row || got[side*side]-got[0] != 100 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
