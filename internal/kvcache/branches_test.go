package kvcache_test

import (
	"strings"
	"testing"

	"onnxquant/internal/kvcache"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
)

// branched is a model with an If, whose branches return y, which their last node makes. cached reads the cache, fresh does not.
func branched(t *testing.T, cached, fresh []*onnxpb.NodeProto) *onnxpb.ModelProto {
	m := graphtext.Model(t, 18, "c:bool[1] k:float[1,2,1,2] past_key:float[1,2,3,2]", "present_key = Concat<axis=2>(past_key, k)", "present_key:float")
	graph := func(name string, nodes []*onnxpb.NodeProto) *onnxpb.AttributeProto {
		return modeltest.GraphAttr(name, nil, nodes...)
	}
	choice := modeltest.Node("If", "present_key", "c", graph("then_branch", cached), graph("else_branch", fresh))
	m.Graph.Node = []*onnxpb.NodeProto{choice}
	return m
}

// Caches that branches of an If extend, or only read and return empty, are found. Others are refused with the reason.
func TestBranches(t *testing.T) {
	type nodes = []*onnxpb.NodeProto
	fresh := nodes{modeltest.Node("Identity", "y", "k")}
	joined := modeltest.Node("Concat", "y", "past_key k", modeltest.IntAttr("axis", 2))
	empty := func(n int64) *onnxpb.NodeProto {
		return modeltest.Node("Constant", "y", "", &onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: modeltest.Floats("", n, 2, 1, 2)})
	}
	for _, c := range []struct {
		cached nodes
		why    string
	}{
		{nodes{joined}, ""},
		{nodes{modeltest.Node("Abs", "a", "past_key"), empty(0)}, ""},
		{nodes{modeltest.Node("Abs", "a", "past_key"), empty(1)}, "neither extends it nor returns an empty cache"},
		{nodes{modeltest.Node("Concat", "y", "past_key k", modeltest.IntAttr("axis", 1))}, "neither extends it nor returns an empty cache"},
		{nodes{modeltest.Node("Concat", "z", "past_key k", modeltest.IntAttr("axis", 2)), modeltest.Node("Abs", "y", "z")}, "is no output"},
	} {
		m := branched(t, c.cached, fresh)
		found, err := kvcache.Find(m)
		switch {
		case c.why != "":
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
			continue
		case err != nil || len(found) != 1 || found[0].Output != "present_key" || found[0].Heads != 2:
			t.Errorf("%+v, %v", found, err)
			continue
		}
		made, err := apply(t, m, map[string][]float32{"past_key": {0.5}})
		if err != nil {
			t.Fatal(err)
		}
		x := modeltest.Graph(t, made)
		codes, err := kvcache.Coded(x)
		if err != nil || len(codes) != 1 || codes[0].Output != "present_key" {
			t.Fatalf("%+v, %v", codes, err)
		}
		back, err := kvcache.Float(x)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := kvcache.Find(back.File.Proto); err != nil || len(again) != 1 || len(back.File.Proto.Graph.Node) != 1 {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// A cache that branches read in another type is refused by that type, not with the advice to take a merged decoder.
func TestBranchesOfFloat16(t *testing.T) {
	joined := modeltest.Node("Concat", "y", "encoder_past_key k", modeltest.IntAttr("axis", 2))
	m := branched(t, []*onnxpb.NodeProto{joined}, []*onnxpb.NodeProto{modeltest.Node("Identity", "y", "k")})
	for _, in := range m.Graph.Input {
		if in.GetName() == "past_key" {
			in.Name = new("encoder_past_key")
			in.Type.GetTensorType().ElemType = new(int32(10))
		}
	}
	_, err := kvcache.Find(m)
	if err == nil || !strings.Contains(err.Error(), "FLOAT16") || strings.Contains(err.Error(), "convert a merged") {
		t.Errorf("error %v", err)
	}
}
