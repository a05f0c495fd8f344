package inspect

import (
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/form"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/write"
	"onnxquant/onnxq"
	"onnxquant/testmodels"
)

// Short names for the table of models.
type (
	nodes   = modeltest.Nodes
	tensors = modeltest.Tensors
)

var (
	model, node, body = modeltest.Model, modeltest.Node, modeltest.GraphAttr
	floats, zeros     = modeltest.Floats, modeltest.Zeros
	intAttr           = form.IntAttr
)

// decoding is y = x·dequantized(q, s), or what the last node makes of v instead.
func decoding(opset int64, codes, scale *onnxpb.TensorProto, block int64, last ...*onnxpb.NodeProto) *testmodels.Model {
	attrs := []*onnxpb.AttributeProto{intAttr("axis", 0)}
	if block != 0 {
		attrs = append(attrs, intAttr("block_size", block))
	}
	if len(last) == 0 {
		last = nodes{node("MatMul", "y", "x v")}
	}
	m := model(tensors{codes, scale}, append(nodes{node("DequantizeLinear", "v", "q s", attrs...)}, last...))
	m.Proto.OpsetImport[0].Version, m.Proto.IrVersion = &opset, new(int64(13))
	return m
}

// transposedHalf is a product with a Transpose of float16.
func transposedHalf() *testmodels.Model {
	half := intAttr("to", int64(dtype.Float16))
	perm := &onnxpb.AttributeProto{Name: new("perm"), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: []int64{1, 2, 0}}
	return model(nil, nodes{node("Cast", "h", "x", half), node("Transpose", "t", "h", perm), node("MatMul", "p", "h t"), node("Cast", "y", "p", intAttr("to", int64(dtype.Float32)))})
}

// summed is a CumSum of an activation that is quantized.
func summed(codes dtype.DType) *testmodels.Model {
	scale := floats("s")
	scale.FloatData[0] = 0.5
	m := model(tensors{scale, zeros("z", codes), zeros("axis", dtype.Int64)}, nodes{
		node("QuantizeLinear", "q", "x s z"), node("DequantizeLinear", "v", "q s z"), node("CumSum", "y", "v axis"),
	})
	m.Proto.OpsetImport[0].Version, m.Proto.IrVersion = new(int64(21)), new(int64(10))
	return m
}

// Each hazard is found where it is, and in no other model here but those named.
func TestHazards(t *testing.T) {
	const f32, f16 = dtype.Float32, dtype.Float16
	float := func() *testmodels.Model {
		return model(tensors{floats("w", 64, 32)}, nodes{node("MatMul", "y", "x w")})
	}
	change := func(m *testmodels.Model, f func(*onnxpb.ModelProto)) *testmodels.Model {
		f(m.Proto)
		return m
	}
	int4 := func(k, n, block int64, last ...*onnxpb.NodeProto) *testmodels.Model {
		return decoding(21, zeros("q", dtype.Int4, k, n), zeros("s", f32, shapes.DivideUp(k, block), n), block, last...)
	}
	nbits := func(bits, block int64) *testmodels.Model {
		return model(tensors{zeros("q", dtype.Uint8, 32, 2, 16), zeros("s", f32, 64)},
			nodes{node("com.microsoft.MatMulNBits", "y", "x q s", intAttr("K", 64), intAttr("N", 32), intAttr("bits", bits), intAttr("block_size", block))})
	}
	shared := func(level int64) *testmodels.Model {
		product := func(y string) *onnxpb.NodeProto {
			return node("com.microsoft.MatMulNBits", y, "x q s", intAttr("K", 64), intAttr("N", 32), intAttr("bits", 4), intAttr("block_size", 32), intAttr("accuracy_level", level))
		}
		return model(tensors{zeros("q", dtype.Uint8, 32, 2, 16), zeros("s", f16, 64)}, nodes{product("y"), product("z")})
	}
	zeroed := func(bits int64, scales, zs dtype.DType) *testmodels.Model {
		m := nbits(bits, 32)
		m.Proto.Graph.Initializer = append(m.Proto.Graph.Initializer[:1:1], zeros("s", scales, 64), zeros("z", zs, 64))
		n := m.Proto.Graph.Node[0]
		n.Input, n.Attribute = append(n.Input, "z"), append(n.Attribute, intAttr("accuracy_level", 4))
		return m
	}
	experts := func(attrs ...*onnxpb.AttributeProto) *testmodels.Model {
		return model(tensors{zeros("q", dtype.Uint8, 4, 64, 32), zeros("s", f32, 4, 64)}, nodes{node("com.microsoft.QMoE", "y", "x x q s _ q s", attrs...)})
	}
	condition := node("Cast", "c", "i", intAttr("to", int64(onnxpb.TensorProto_BOOL)))
	cases := []struct {
		name  string
		model *testmodels.Model
		want  string // checks: openvino-… and tensorrt-… apart
		other string // those
		where string // of the first check
	}{
		{"float", float(), "", "", ""},
		{"no import", change(float(), func(p *onnxpb.ModelProto) { p.Graph.Node[0].Domain = new("elsewhere") }), "missing-import", "", "elsewhere"},
		{"old IR", change(float(), func(p *onnxpb.ModelProto) { p.IrVersion = new(int64(7)) }), "ir-behind", "", "IR 7, opset 17 is of IR 8"},
		{"dead", change(float(), func(p *onnxpb.ModelProto) {
			p.Graph.Initializer = append(p.Graph.Initializer, floats("d", 8))
		}), "dead-initializer", "", "d"},
		{"replaceable", change(float(), func(p *onnxpb.ModelProto) {
			p.Graph.Initializer = append(p.Graph.Initializer, floats("b", 8))
			p.Graph.Node = append(p.Graph.Node, node("Add", "z", "y b"))
			p.Graph.Input = append(p.Graph.Input, &onnxpb.ValueInfoProto{Name: new("w"), Type: p.Graph.Input[0].Type})
		}), "replaceable", "", "w"},
		{"too new", change(float(), func(p *onnxpb.ModelProto) { p.OpsetImport[0].Version, p.IrVersion = new(int64(27)), new(int64(14)) }), "ort-versions", "tensorrt-versions", "opset 27, it loads up to 26"},

		{"blocks", int4(128, 32, 64), "ort-activations", "", "v"},
		{"blocks at an old opset", decoding(20, zeros("q", dtype.Int8, 128, 32), zeros("s", f32, 2, 32), 64), "block-opset ort-activations", "tensorrt-blocks", "v"},
		{"type at an old opset", decoding(20, zeros("q", dtype.Int4, 128, 32), zeros("s", f32), 0), "type-opset ort-activations", "", "v"},
		{"scale at an old opset", decoding(18, zeros("q", dtype.Int8, 128, 32), zeros("s", f16), 0), "type-opset ort-activations", "", "v"},
		{"2 bits", decoding(25, zeros("q", dtype.Int2, 128, 30), zeros("s", f32, 2, 30), 64), "ort-2bit-columns ort-activations", "openvino-types tensorrt-types", "v"},
		{"2 bits that go well", decoding(25, zeros("q", dtype.Int2, 128, 32), zeros("s", f32, 2, 32), 64), "ort-activations", "openvino-types tensorrt-types", "v"},
		{"E2M1", decoding(23, zeros("q", dtype.Float4E2M1, 128, 32), zeros("s", f32, 8, 32), 16), "ort-types ort-unfused", "", "v"},
		{"bfloat16", decoding(21, zeros("q", dtype.Int8, 128, 32), zeros("s", dtype.BFloat16), 0), "ort-types ort-bfloat16 ort-unfused", "", "v"},
		{"one scale", decoding(21, zeros("q", dtype.Int8, 64), zeros("s", f32, 1), 64), "ort-single-scale ort-unfused", "", "v"},
		{"a vector", decoding(21, zeros("q", dtype.Int8, 64), zeros("s", f32, 2), 32), "ort-unfused", "openvino-vector tensorrt-blocks", "v"},
		{"another block", int4(96, 32, 48), "ort-unfused", "openvino-blocks tensorrt-blocks", "v"},
		{"short last block", int4(96, 32, 64), "ort-activations", "openvino-short-block tensorrt-blocks", "v"},
		{"odd", int4(63, 32, 64), "ort-activations", "openvino-short-block openvino-odd tensorrt-blocks", "v"},
		{"two readers", int4(128, 32, 64, node("MatMul", "a", "x v"), node("MatMul", "y", "x v")), "ort-unfused", "", "v"},
		{"transB", int4(128, 32, 64, node("Gemm", "y", "x v", intAttr("transB", 1))), "ort-unfused", "openvino-axis", "v"},
		{"transB, rows", decoding(21, zeros("q", dtype.Int8, 128, 32), zeros("s", f32, 128), 0, node("Gemm", "y", "x v", intAttr("transB", 1))), "ort-unfused", "", "v"},
		{"Relu", int4(128, 32, 64, node("MatMul", "a", "x v"), node("Relu", "b", "a"), node("Neg", "y", "b")), "ort-unfused", "", "v"},
		{"a last Relu", int4(128, 32, 64, node("MatMul", "a", "x v"), node("Relu", "y", "a")), "ort-activations", "", "v"},
		{"Transpose", int4(128, 32, 64, node("Transpose", "a", "v"), node("MatMul", "y", "x a")), "ort-unfused", "", "v"},
		{"no weight", int4(128, 32, 64, node("Add", "y", "x v")), "", "", ""},
		{"quantized activations", int4(128, 32, 64, node("DequantizeLinear", "a", "i s"), node("MatMul", "b", "a v"), node("MatMul", "y", "a v")), "", "", ""},
		{"zero point", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			z := zeros("z", dtype.Int4, 2, 32)
			z.RawData[3] = 1
			p.Graph.Initializer = append(p.Graph.Initializer, z)
			p.Graph.Node[0].Input = append(p.Graph.Node[0].Input, "z")
		}), "ort-activations", "tensorrt-zero-point", "v"},
		{"zero points of 0", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			p.Graph.Initializer = append(p.Graph.Initializer, zeros("z", dtype.Int4, 2, 32))
			p.Graph.Node[0].Input = append(p.Graph.Node[0].Input, "z")
		}), "ort-activations", "", "v"},
		{"scales of another type", change(decoding(23, zeros("q", dtype.Int8, 128, 32), zeros("s", f16, 2, 32), 64), func(p *onnxpb.ModelProto) {
			p.Graph.Node[0].Attribute = append(p.Graph.Node[0].Attribute, intAttr("output_dtype", int64(f32)))
		}), "ort-mixed-types ort-activations", "tensorrt-blocks", "v"},
		{"shared scales", shared(4), "ort-scales ort-shared-scales", "", "y"},
		{"shared scales, in float", shared(1), "", "", ""},
		{"3 bits", nbits(3, 32), "ort-nbits", "", "y"},
		{"large blocks", nbits(4, 512), "ort-nbits", "", "y"},
		{"4 bits", nbits(4, 32), "", "", ""},
		{"float zero points", zeroed(4, f32, f32), "ort-float-zeros", "", "y"},
		{"float zero points of 8 bits", zeroed(8, f16, f16), "ort-scales ort-nbits", "", "y"},
		{"zero points that are codes", zeroed(4, f32, dtype.Uint8), "", "", ""},
		{"bfloat16 scales", zeroed(4, dtype.BFloat16, dtype.Uint8), "ort-bfloat16", "", "y (com.microsoft.MatMulNBits)"},
		{"computed scales", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			p.Graph.Initializer[1] = zeros("h", dtype.Float16, 2, 32)
			p.Graph.Node = append(nodes{node("Cast", "s", "h", intAttr("to", int64(f32)))}, p.Graph.Node...)
		}), "ort-activations", "tensorrt-scales", "v"},
		{"transposed", transposedHalf(), "ort-transpose", "", "t"},
		{"transposed otherwise", change(transposedHalf(), func(p *onnxpb.ModelProto) { p.Graph.Node[1].Attribute[0].Ints = []int64{0, 2, 1} }), "", "", ""},
		{"8 bits at level 0", nbits(8, 32), "ort-nbits-level", "", "y"},
		{"in a branch", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			branch := p.Graph.Node
			p.Graph.Node = nodes{condition, node("If", "z", "c",
				body("then_branch", tensors{floats("u", 32, 32)}, append(slices.Clone(branch), node("MatMul", "t", "y u"))...),
				body("else_branch", nil, node("Identity", "e", "x")))}
			p.Graph.Output[0].Name = new("z")
		}), "subgraph-float ort-outer-weight ort-activations", "", "then_branch/u"},
		{"float16 in a branch", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			p.Graph.Initializer[1] = zeros("s", f16, 2, 32)
			branch := p.Graph.Node
			p.Graph.Node = nodes{condition, node("If", "z", "c", body("then_branch", p.Graph.Initializer, branch...), body("else_branch", nil, node("Identity", "e", "x")))}
			p.Graph.Initializer, p.Graph.Output[0].Name = nil, new("z")
		}), "ort-nested-half ort-activations", "", "then_branch/v"},
		{"float16 MatMulNBits in a branch", change(zeroed(4, f16, dtype.Uint8), func(p *onnxpb.ModelProto) {
			branch := p.Graph.Node
			p.Graph.Node = nodes{condition, node("If", "z", "c", body("then_branch", p.Graph.Initializer, branch...), body("else_branch", nil, node("Identity", "e", "x")))}
			p.Graph.Initializer, p.Graph.Output[0].Name = nil, new("z")
		}), "ort-nested-scales", "", "y"},
		{"no kernel", change(float(), func(p *onnxpb.ModelProto) {
			p.OpsetImport[0].Version, p.IrVersion = new(int64(22)), new(int64(10))
			p.Graph.Node = append(p.Graph.Node, node("RandomNormalLike", "r", "y"))
		}), "ort-kernels", "", "r (RandomNormalLike) at opset 22"},
		{"no kernel with bfloat16", change(float(), func(p *onnxpb.ModelProto) {
			p.Graph.Node = append(p.Graph.Node, node("Cast", "h", "y", intAttr("to", int64(dtype.BFloat16))), node("Neg", "n", "h"), node("Identity", "k", "n"))
		}), "ort-bfloat16", "", "n (Neg)"},
		{"one scale in a list", decoding(21, zeros("q", dtype.Int8, 128, 32), zeros("s", f32, 1), 0), "ort-unfused", "", "v"},
		{"Scan", change(int4(128, 32, 64), func(p *onnxpb.ModelProto) {
			scanned := &onnxpb.AttributeProto{Name: new("body"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: &onnxpb.GraphProto{
				Name: new("g"), Input: []*onnxpb.ValueInfoProto{{Name: new("r")}}, Output: []*onnxpb.ValueInfoProto{{Name: new("m")}}, Node: nodes{node("MatMul", "m", "r v")},
			}}
			p.Graph.Node[1] = node("Scan", "y", "x", scanned, intAttr("num_scan_inputs", 1))
		}), "ort-unfused", "openvino-scan", "v"},
		{"decoded experts", decoding(21, zeros("q", dtype.Int4, 4, 64, 64), zeros("s", f32, 4, 2, 64), 32, node("com.microsoft.MoE", "y", "x x v _ v")), "ort-experts", "openvino-short-block tensorrt-blocks", "v (decodes 64 KiB)"},
		{"experts by channels", experts(intAttr("normalize_routing_weights", 1)), "ort-expert-channels", "", "y"},
		{"experts weighed wrongly", experts(intAttr("block_size", 64)), "ort-expert-weights", "", "y"},
		{"experts of float16", model(tensors{zeros("w", f16, 4, 64, 64)}, nodes{node("Cast", "h", "x", intAttr("to", int64(f16))), node("com.microsoft.MoE", "m", "h h w _ w"), node("Cast", "y", "m", intAttr("to", int64(f32)))}), "ort-half-experts", "", "m"},
		{"sums of 8 bits", summed(dtype.Uint8), "qnn-8bit", "", "y"},
		{"sums of 16 bits", summed(dtype.Uint16), "", "", ""},
		{"sums of 16 bits without zero points", change(summed(dtype.Uint16), func(p *onnxpb.ModelProto) {
			p.Graph.Node[0] = node("QuantizeLinear", "q", "x s", intAttr("output_dtype", int64(dtype.Uint16)))
			p.Graph.Node[1] = node("DequantizeLinear", "v", "q s")
			p.Graph.Initializer = slices.Delete(p.Graph.Initializer, 1, 2)
		}), "", "", ""},
	}
	tested := map[string]bool{"embedded-2gib": true} // below
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got, other []string
			var hazards []Hazard
			for _, h := range Model(modeltest.Open(t, modeltest.Write(t, c.model)), onnxq.Options{}).Hazards {
				if tested[h.Check] = true; strings.HasPrefix(h.Check, "ortweb") { // see TestHazardsOfBrowsers
					continue
				}
				hazards = append(hazards, h)
				if strings.HasPrefix(h.Check, "openvino") || strings.HasPrefix(h.Check, "tensorrt") {
					other = append(other, h.Check)
				} else {
					got = append(got, h.Check)
				}
			}
			if strings.Join(got, " ") != c.want || strings.Join(other, " ") != c.other {
				t.Errorf("%v and %v, want %s and %s", got, other, c.want, c.other)
			} else if len(hazards) > 0 && c.where != hazards[0].Where[0] {
				t.Errorf("%s in %q, want %s", hazards[0].Check, hazards[0].Where, c.where)
			}
		})
	}
	for _, c := range checks {
		if !tested[c.name] {
			t.Errorf("no model has the hazard %s", c.name)
		}
	}
	if large := (&hazardSearch{in: &Inspection{FileBytes: write.MaxEmbedded + 1}}); len(largeFile(large)) != 1 {
		t.Error("a file of 2 GiB is none too large")
	}
}

// The older WebGPU kernels compute some models wrongly, and refuse some.
func TestHazardsOfBrowsers(t *testing.T) {
	const f32 = dtype.Float32
	nbits := func(bits, block, k int64, inputs string) *testmodels.Model {
		return model(tensors{zeros("q", dtype.Uint8, 32, 2, 16), zeros("s", f32, 64), floats("b", 32)},
			nodes{node("com.microsoft.MatMulNBits", "y", inputs, intAttr("K", k), intAttr("N", 32), intAttr("bits", bits), intAttr("block_size", block))})
	}
	single := decoding(21, zeros("q", dtype.Int8, 128, 32), zeros("s", f32), 0)
	for _, c := range []struct {
		model *testmodels.Model
		want  string
	}{
		{nbits(4, 32, 64, "x q s"), ""},
		{nbits(2, 64, 128, "x q s"), ""},
		{nbits(4, 64, 128, "x q s"), "ortweb-jsep-blocks"},
		{nbits(2, 128, 256, "x q s"), "ortweb-jsep-blocks"},
		{nbits(4, 32, 80, "x q s"), "ortweb-jsep-blocks"},
		{nbits(8, 32, 64, "x q s"), "ortweb-jsep-inputs"},
		{nbits(4, 32, 64, "x q s _ _ b"), "ortweb-jsep-inputs"},
		{single, "ortweb-jsep-scalar"},
		{decoding(21, zeros("q", dtype.Int8, 128, 32), zeros("s", f32, 4, 32), 32), ""},
	} {
		var got []string
		for _, h := range Model(modeltest.Open(t, modeltest.Write(t, c.model)), onnxq.Options{}).Hazards {
			if strings.HasPrefix(h.Check, "ortweb") {
				got = append(got, h.Check)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %q, want %q", c.model.Proto.Graph.Node[0], got, c.want)
		}
	}
}

// A hazard is at the weight, though a Reshape makes it of the output of DequantizeLinear.
func TestHazardsNameWeights(t *testing.T) {
	const weight = "w"
	decode := node("DequantizeLinear", "decoded", "q s", intAttr("axis", 0), intAttr("block_size", 32))
	m := modeltest.Open(t, modeltest.Write(t, model(
		tensors{zeros("q", dtype.Int2, 64, 30, 1), zeros("s", dtype.Float32, 2, 30, 1), modeltest.Integers("shape", 64, 30)},
		nodes{decode, node("Reshape", weight, "decoded shape"), node("MatMul", "y", "x "+weight)})))
	hazards := Model(m, onnxq.Options{}).Hazards
	if !slices.ContainsFunc(hazards, func(h Hazard) bool { return h.Check == "ort-unfused" }) {
		t.Errorf("%v lack ort-unfused", hazards)
	}
	for _, h := range hazards {
		if strings.HasPrefix(h.Text, "DequantizeLinear") && !slices.Equal(h.Where, []string{weight}) {
			t.Errorf("%s in %q, want %q", h.Check, h.Where, weight)
		}
	}
}
