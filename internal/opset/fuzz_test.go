package opset

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/testmodels"
)

// FuzzRaise raises whatever is a model as far as its encoding goes. It must not
// panic, and must leave what it refuses as it was.
func FuzzRaise(f *testing.F) {
	for _, seed := range []struct {
		opset         int64
		inputs, nodes string
	}{
		{1, "x:float[2,3] t", "h = Add<axis=0, broadcast=1>(x, t)\ng = Tile(h, t, t)\ny = Cast<to=\"INT64\">(g)"},
		{7, "x:float", "h = Clip<min=0.5>(x)\ng = Upsample<scales=[1.0,2.0]>(h)\ny, m = Dropout<ratio=0.5>(g)"},
		{8, "l s x", "y, ys = Scan<num_scan_inputs=1>(l, s, x)"},
		{9, "x s b m v", "h, a, c, d, e = BatchNormalization(x, s, b, m, v)\ny, i = TopK<k=3>(h)"},
		{10, "x s", "h = Resize(x, s)\ny = Pad<pads=[0,1], value=1.5>(h)"},
		{11, "x:float[2,3]", "h = Softmax(x)\ng = ReduceSum<axes=[0]>(h)\ny, z = Split(g)"},
		{14, "x s", "y = SimplifiedLayerNormalization<axis=-4611686018427387904>(x, s)"},
		{18, "x s b", "y = GroupNormalization<num_groups=2>(x, s, b)"},
	} {
		m := graphtext.Model(f, seed.opset, seed.inputs, seed.nodes, "y")
		if n := m.Graph.Node[0]; n.GetOpType() == "Scan" {
			body := graphtext.Model(f, 8, "s:float e:float", "t = Add(s, e)", "t s").Graph
			n.Attribute = append(n.Attribute, graphAttribute("body", body))
		}
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, int64(25))
	}
	for _, model := range testmodels.Seeds() {
		f.Add(model, int64(25))
	}
	f.Fuzz(func(t *testing.T, data []byte, to int64) {
		m := &onnxpb.ModelProto{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		before := proto.Clone(m)
		if err := Raise(m, to, freshNames()); err == nil {
			if err := Raise(m, to, freshNames()); err != nil {
				t.Errorf("raised twice: %v", err)
			}
		} else if a, b := marshal(t, m), marshal(t, before); a != b {
			t.Errorf("%v, and the model changed", err)
		}
	})
}

func marshal(t *testing.T, m proto.Message) string {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
