package kvcache_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
	"onnxquant/internal/kvcache"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/spec"
)

// attention is a decoder with GroupQueryAttention.
func attention(t *testing.T, attributes string) *onnxpb.ModelProto {
	m := graphtext.Model(t, 18, "q:float[1,2,8] k:float[1,2,4] v:float[1,2,4] pk:float[1,2,3,2] pv:float[1,2,3,2] s:int32[1] n:int32[]",
		"o, rk, rv = com.microsoft::GroupQueryAttention<num_heads=4, kv_num_heads=2"+attributes+">(q, k, v, pk, pv, s, n)", "o:float rk:float rv:float")
	m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new("com.microsoft"), Version: new(int64(1))})
	return m
}

const joins = "k:float[1,2,1,2] v:float[1,2,1,2] pk:float[1,2,3,2] pv:float[1,2,3,2]"

func joined(t *testing.T, nodes string) *onnxpb.ModelProto {
	return graphtext.Model(t, 18, joins, nodes, "rk:float[1,2,4,2] rv:float[1,2,4,2] o:float")
}

func apply(t *testing.T, m *onnxpb.ModelProto, scales map[string][]float32) (*onnxpb.ModelProto, error) {
	c := modeltest.Graph(t, m).Copy()
	_, err := kvcache.Apply(c, scales)
	return c.Proto, err
}

func TestApply(t *testing.T) {
	concat := "rk = Concat<axis=2>(pk, k)\nrv = Concat<axis=-2>(pv, v)\no = MatMul(rk, rv)"
	for _, test := range []struct {
		name       string
		model      *onnxpb.ModelProto
		scales     []float32
		operator   string
		want       string
		attributes []string
	}{
		{"GroupQueryAttention", attention(t, ""), []float32{0.5}, "com.microsoft.GroupQueryAttention",
			`o, rk, rv = GroupQueryAttention<num_heads=4, kv_num_heads=2, k_quant_type="PER_TENSOR", kv_cache_bit_width=8, v_quant_type="PER_TENSOR", kv_cache_bit_width=8>(q, k, v, pk, pv, s, n, "", "", "", "", "", [0.5], [0.5])`, nil},
		{"channels", attention(t, ""), []float32{1, 2, 3, 4}, "com.microsoft.GroupQueryAttention",
			`GroupQueryAttention<num_heads=4, kv_num_heads=2, k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL", kv_cache_bit_width=8>(q, k, v, pk, pv, s, n, "", "", "", "", "", [1.0 2.0 3.0 4.0], [1.0 2.0 3.0 4.0])`, nil},
		{"Concat", joined(t, concat), []float32{0.5}, "Concat", `
			pk_DequantizeLinear_Output = DequantizeLinear(pk, 0.5, ?)
			pv_DequantizeLinear_Output = DequantizeLinear(pv, 0.5, ?)
			rk_QuantizeLinear_Input = Concat<axis=2>(pk_DequantizeLinear_Output, k)
			rv_QuantizeLinear_Input = Concat<axis=-2>(pv_DequantizeLinear_Output, v)
			o = MatMul(rk_QuantizeLinear_Input, rv_QuantizeLinear_Input)
			rk = QuantizeLinear(rk_QuantizeLinear_Input, 0.5, ?)
			rv = QuantizeLinear(rv_QuantizeLinear_Input, 0.5, ?)`, nil},
		{"Concat, heads", joined(t, concat), []float32{1, 2}, "Concat", "rk = QuantizeLinear<axis=1>(rk_QuantizeLinear_Input, [1.0 2.0], ?)", nil},
		{"Concat, channels", joined(t, concat), []float32{1, 2, 3, 4}, "Concat", "rk = QuantizeLinear(rk_Div_Output, 1.0, ?)", nil},
		{"Casts", joined(t, "a = Cast<to=10>(pk)\nb = Concat<axis=2>(a, k)\nrk = Cast<to=1>(b)\nrv = Concat<axis=2>(pv, v)\no = Shape(a)"), []float32{1}, "Concat",
			"a = Cast<to=10>(pk_DequantizeLinear_Output)", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			caches, err := kvcache.Find(test.model)
			if err != nil || len(caches) != 2 || caches[0].Input != "pk" || caches[0].Output != "rk" || caches[1].Output != "rv" || caches[0].Operator != test.operator {
				t.Fatalf("%+v, %v", caches, err)
			}
			made, err := apply(t, test.model, map[string][]float32{"pk": test.scales, "pv": test.scales})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(graphtext.Print(made.Graph.Node, made.Graph.Initializer), `, kv_cache_bit_width=8, v_quant_type`, `, v_quant_type`)
			want := strings.ReplaceAll(strings.TrimSpace(graphtext.Unindent(test.want)), `, kv_cache_bit_width=8, v_quant_type`, `, v_quant_type`)
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, list := range [][]*onnxpb.ValueInfoProto{made.Graph.Input, made.Graph.Output} {
				for _, v := range list {
					cache := slices.Contains([]string{"pk", "pv", "rk", "rv"}, v.GetName())
					if int8s := v.GetType().GetTensorType().GetElemType() == 3; int8s != cache {
						t.Errorf("%v", v)
					}
				}
			}
			x := modeltest.Graph(t, made)
			coded, err := kvcache.Coded(x)
			if err != nil || len(coded) != 2 || coded[1].Input != "pv" || coded[1].Output != "rv" || !slices.Equal(coded[0].Scales, test.scales) {
				t.Fatalf("%+v, %v", coded, err)
			}
			back, err := kvcache.Float(x)
			if err != nil {
				t.Fatal(err)
			}
			if kvcache.HasCodes(back) {
				t.Error("codes are left")
			}
			if got, want := back.File.Proto, test.model; !proto.Equal(normal(got), normal(want)) {
				t.Errorf("got\n%v\nwant\n%v", normal(got), normal(want))
			}
		})
	}
}

// normal is a model with its nodes in the order of their outputs and without payloads.
func normal(m *onnxpb.ModelProto) *onnxpb.ModelProto {
	m = proto.CloneOf(m)
	slices.SortStableFunc(m.Graph.Node, func(a, b *onnxpb.NodeProto) int { return strings.Compare(a.Output[0], b.Output[0]) })
	return m
}

// Models that are damaged cause errors, no panics.
func TestDamaged(t *testing.T) {
	concat := joined(t, "rk = Concat<axis=2>(pk, k)\nrv = Concat<axis=2>(pv, v)\no = MatMul(rk, rv)")
	scales := map[string][]float32{"pk": {1, 2, 3, 4}, "pv": {1, 2}}
	for _, m := range []*onnxpb.ModelProto{attention(t, ""), concat} {
		made, err := apply(t, m, scales)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 0))
			for _, damaged := range []*onnxpb.ModelProto{proto.CloneOf(m), proto.CloneOf(made)} {
				modeltest.Mutate(rng, damaged, made)
				path := filepath.Join(t.TempDir(), "m.onnx")
				raw, err := proto.Marshal(damaged)
				if err != nil {
					continue
				}
				if err := os.WriteFile(path, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := modelfile.Open(path)
				if err != nil {
					continue
				}
				if x, err := graph.New(f); err == nil {
					_, _ = kvcache.Coded(x)
					_, _ = kvcache.Float(x)
					_, _ = kvcache.Apply(x.Copy(), scales)
				}
				f.Close()
			}
		}
	}
}

// A GroupQueryAttention in half gets its cache without the Casts around it.
func TestApplyHalf(t *testing.T) {
	m := attention(t, "")
	g := m.Graph
	g.Node[0].Input[3], g.Node[0].Input[4], g.Node[0].Output = "a", "b", []string{"o", "x", "y"}
	g.Node = append(graphtext.Nodes(t, "a = Cast<to=10>(pk)\nb = Cast<to=10>(pv)"), append(g.Node, graphtext.Nodes(t, "rk = Cast<to=1>(x)\nrv = Cast<to=1>(y)")...)...)
	made, err := apply(t, m, map[string][]float32{"pk": {1}, "pv": {1}})
	if err != nil {
		t.Fatal(err)
	}
	if n := made.Graph.Node; len(n) != 1 || n[0].Input[3] != "pk" || n[0].Output[2] != "rv" {
		t.Fatalf("%v", n)
	}
	back, err := kvcache.Float(modeltest.Graph(t, made))
	if err != nil {
		t.Fatal(err)
	}
	if n := back.File.Proto.Graph.Node; len(n) != 5 || n[0].GetOpType() != "Cast" || n[4].GetOpType() != "Cast" {
		t.Errorf("%v", n)
	}
}

func TestRefuses(t *testing.T) {
	body := modeltest.Node("If", "z", "c", modeltest.GraphAttr("then_branch", nil, modeltest.Node("Identity", "w", "rk")))
	inside := joined(t, "rk = Concat<axis=2>(pk, k)\nrv = Concat<axis=2>(pv, v)\no = MatMul(rk, rv)")
	inside.Graph.Node = append(inside.Graph.Node, body)
	one := attention(t, "")
	one.Graph.Output = one.Graph.Output[:2]
	shared := attention(t, "")
	shared.Graph.Node = append(shared.Graph.Node, graphtext.Nodes(t, "z = Relu(rk)")...)
	for _, test := range []struct {
		name  string
		model *onnxpb.ModelProto
		want  string
	}{
		{"none", graphtext.Model(t, 18, "x:float[1,4]", "y = Relu(x)", "y:float"), "no key-value cache: the model has no input that an operator extends"},
		{"coded", graphtext.Model(t, 18, "x:int8[1,4]", "y = Identity(x)", "y:int8"), "may be quantized already"},
		{"by name", graphtext.Model(t, 18, "past_key:float[1,2,3,2]", "y = Relu(past_key)", "y:float"), `input "past_key": Relu node "y" reads it, which extends no cache; it cannot become int8`},
		{"no output", graphtext.Model(t, 18, "k:float[1,2,1,2] past:float[1,2,3,2]", "a = Concat<axis=2>(past, k)\no = Relu(a)", "o:float"), `input "past": the longer cache of Concat node "a" is no output`},
		{"body", inside, "the body of a node"},
		{"one of two", one, "no output"},
		{"read", shared, "reads the longer cache as floats"},
	} {
		_, err := kvcache.Find(test.model)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	if _, err := kvcache.Find(graphtext.Model(t, 18, "x:float", "y = Relu(x)", "y:float")); !errors.Is(err, kvcache.ErrNone) {
		t.Error(err)
	}
	for name, scales := range map[string]map[string][]float32{
		`input "pv": it has no scales`:                 {"pk": {1}},
		`input "pk": it has no scales`:                 {"pk": {}, "pv": {1}},
		`input "pk": 3 scales for 2 heads`:             {"pk": {1, 2, 3}, "pv": {1}},
		`input "pk": 6 scales for 2 heads`:             {"pk": {1, 2, 3, 4, 5, 6}, "pv": {1}},
		`input "pk": the scale 0; want`:                {"pk": {0}, "pv": {1}},
		`input "pv": the scale -1; want`:               {"pk": {1}, "pv": {1, -1}},
		`input "pv": the scale NaN; want`:              {"pk": {1}, "pv": {1, float32(math.NaN())}},
		`input "pv": the scale +Inf; want`:             {"pk": {1}, "pv": {float32(math.Inf(1))}},
		`"other" has scales, which is no cache; the m`: {"pk": {1}, "pv": {1}, "other": {1}},
	} {
		if _, err := apply(t, attention(t, ""), scales); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	old := joined(t, "rk = Concat<axis=2>(pk, k)\nrv = Concat<axis=2>(pv, v)\no = MatMul(rk, rv)")
	old.OpsetImport[0].Version = new(int64(11))
	if _, err := apply(t, old, map[string][]float32{"pk": {1, 2}, "pv": {1, 2}}); err == nil || !strings.Contains(err.Error(), "opset 11 lacks") {
		t.Error(err)
	}
}

// GroupQueryAttention has no scales for each head: its channels get them.
func TestScalesOfHeads(t *testing.T) {
	made, err := apply(t, attention(t, ""), map[string][]float32{"pk": {1, 2}, "pv": {3}})
	if err != nil {
		t.Fatal(err)
	}
	coded, err := kvcache.Coded(modeltest.Graph(t, made))
	if err != nil || !slices.Equal(coded[0].Scales, []float32{1, 1, 2, 2}) || !slices.Equal(coded[1].Scales, []float32{3}) {
		t.Errorf("%+v, %v", coded, err)
	}
	open := attention(t, "")
	open.Graph.Input[3].Type.GetTensorType().Shape.Dim[3].Value = nil
	if _, err := apply(t, open, map[string][]float32{"pk": {1, 2}, "pv": {3}}); err == nil || !strings.Contains(err.Error(), "leaves the size of heads open") {
		t.Error(err)
	}
	if _, err := apply(t, open, map[string][]float32{"pk": {1, 2, 3, 4}, "pv": {3}}); err != nil {
		t.Error(err)
	}
}

func TestScales(t *testing.T) {
	x := []float32{3, 4, -12.7, 0, 0, -25.4, 1, 2} // two heads of two channels, two tokens
	for _, test := range []struct {
		attributes string
		by         spec.KVCache
		want       []float32
	}{
		{"", spec.KVInt8, []float32{25.4 / 127}},
		{"", spec.KVInt8PerHead, []float32{12.7 / 127, 12.7 / 127, 25.4 / 127, 25.4 / 127}},
		{"", spec.KVInt8PerChannel, []float32{12.7 / 127, 4. / 127, 1. / 127, 25.4 / 127}},
		// Channels that are rotated in pairs: their norm bounds both at any position.
		{", do_rotary=1", spec.KVInt8PerChannel, []float32{12.7 / 127, 12.7 / 127, 25.4 / 127, 25.4 / 127}},
	} {
		caches, err := kvcache.Find(attention(t, test.attributes))
		if err != nil {
			t.Fatal(err)
		}
		o := kvcache.NewObserver(caches[0])
		if _, err := o.Scales(test.by); err == nil || !strings.Contains(err.Error(), "no values") {
			t.Error(err)
		}
		if err := o.Observe([]int64{1, 2, 2, 2}, x); err != nil {
			t.Fatal(err)
		}
		got, err := o.Scales(test.by)
		if err != nil || !slices.EqualFunc(got, test.want, func(a, b float32) bool { return max(a-b, b-a) < 1e-7 }) {
			t.Errorf("%s%s: %v, %v; want %v", test.by, test.attributes, got, err, test.want)
		}
		if err := o.Observe([]int64{1, 3, 2, 2}, make([]float32, 12)); err == nil {
			t.Error("another shape")
		}
	}
}

func TestCodes(t *testing.T) {
	x := []float32{0.5, 1.5, -3, 300, 2, -2, 0, 1}
	dims := []int64{1, 2, 2, 2}
	for _, test := range []struct {
		scales []float32
		want   []int8
	}{
		{[]float32{1}, []int8{0, 2, -3, 127, 2, -2, 0, 1}},
		{[]float32{1, 2}, []int8{0, 2, -3, 127, 1, -1, 0, 0}},
		{[]float32{1, 3, 0.5, 1}, []int8{0, 0, -3, 100, 4, -2, 0, 1}},
	} {
		c := &kvcache.Codes{Scales: test.scales}
		codes, err := c.Encode(dims, x)
		if err != nil {
			t.Fatal(err)
		}
		var got []int8
		for _, b := range codes {
			got = append(got, int8(b))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.scales, got, test.want)
		}
		if y, err := c.Decode(dims, codes); err != nil || y[2] != -3 {
			t.Errorf("%v, %v", y, err)
		}
	}
	if _, err := (&kvcache.Codes{Scales: []float32{1, 2, 3}}).Encode(dims, x); err == nil {
		t.Error("three scales")
	}
}
