package rewrite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/rules"
	"onnxquant/spec"
)

// quantized rewrites a model with the given options. It checks that the opened model does not
// change.
func quantized(t *testing.T, m *onnxpb.ModelProto, o discover.Options) *rewrite.Model {
	t.Helper()
	x := modeltest.Graph(t, m)
	before := proto.CloneOf(x.File.Proto)
	if o.Ops == nil {
		o.Ops = []string{"MatMul", "Gemm", "Gather"}
	}
	if o.Target == nil {
		o.Target = target.Of(spec.Portable)
	}
	if o.Algorithm == "" {
		o.Algorithm = spec.RTN
	}
	if o.Activations == "" {
		o.Activations = spec.WeightsOnly
	}
	decisions, pairs, err := discover.All(x, o, discover.Exceptions{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := rewrite.Quantize(x, decisions, pairs)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(before, x.File.Proto) {
		t.Error("the model that was opened has changed")
	}
	return made
}

// show prints a model: its opset and IR version, inputs other than x and i, stored tensors and
// nodes.
func show(m *onnxpb.ModelProto) string {
	var b strings.Builder
	g := m.Graph
	fmt.Fprintf(&b, "opset %d, IR %d\n", graph.Opset(m), m.GetIrVersion())
	for _, in := range g.Input {
		if name := in.GetName(); name != "x" && name != "i" {
			b.WriteString("input " + name + "\n")
		}
	}
	return b.String() + graphtext.Tensors(g.Initializer) + graphtext.Print(g.Node, nil)
}

func TestQuantize(t *testing.T) {
	ort := target.Of(spec.ORT)
	const matrix = "x:float[2,64] w:float[64,32]=1,-2,3"
	for _, c := range []struct {
		name          string
		opset         int64
		values        string
		before, after string
		options       discover.Options
	}{
		{"blocks", 21, matrix, `y = MatMul(x, w)`, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[2,32]
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			y = MatMul(x, w)`, discover.Options{Bits: 4, Block: 32}},
		{"zero points", 21, matrix, `y = MatMul(x, w)`, `
			opset 21, IR 10
			w_u4:uint4[64,32]
			w_scale:float[2,32]
			w_zp:uint4[2,32]
			w = DequantizeLinear<axis=0, block_size=32>(w_u4, w_scale, w_zp)
			y = MatMul(x, w)`, discover.Options{Bits: 4, Block: 32, ZeroPoint: true}},
		{"channels", 13, matrix, `y = MatMul(x, w)`, `
			opset 13, IR 7
			w_i8:int8[64,32]
			w_scale:float[32]
			w = DequantizeLinear<axis=1>(w_i8, w_scale)
			y = MatMul(x, w)`, discover.Options{Bits: 8, Block: spec.PerChannel}},
		{"raised opset", 11, matrix + " s:float[1]=1", `
			h = MatMul(x, w)
			y = Squeeze<axes=[0]>(h)`, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[2,32]
			s:float[1]
			axes:int64[1]
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			h = MatMul(x, w)
			y = Squeeze(h, axes)`, discover.Options{Bits: 4, Block: 32}},
		{"nothing", 11, matrix, `
			h = MatMul(x, w)
			y = Squeeze<axes=[0]>(h)`, `
			opset 11, IR 4
			w:float[64,32]
			h = MatMul(x, w)
			y = Squeeze<axes=[0]>(h)`, discover.Options{Bits: 4, Block: 32, Ops: []string{"Conv"}}},
		{"two readers", 21, matrix, `
			h = MatMul(x, w)
			k = MatMul(x, w)
			y = Add(h, k)`, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[2,32]
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			h = MatMul(x, w)
			k = MatMul(x, w)
			y = Add(h, k)`, discover.Options{Bits: 4, Block: 32}},
		{"behind a Transpose", 21, "x:float[2,64] w:float[32,64]=1,-2,3", `
			v = Transpose<perm=[1,0]>(w)
			y = MatMul(x, v)`, `
			opset 21, IR 10
			w_i4:int4[32,64]
			w_scale:float[32,2]
			w = DequantizeLinear<axis=1, block_size=32>(w_i4, w_scale)
			v = Transpose<perm=[1,0]>(w)
			y = MatMul(x, v)`, discover.Options{Bits: 4, Block: 32}},
		{"table", 21, "i:int64[3] w:float[64,32]=1,-2,3", `y = Gather(w, i)`, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[64,1]
			w = DequantizeLinear<axis=1, block_size=32>(w_i4, w_scale)
			y = Gather(w, i)`, discover.Options{Bits: 4, Block: 32}},
		{"fake quantization", 21, matrix, `y = MatMul(x, w)`, `
			opset 21, IR 10
			w:float[64,32]
			w_scale:float[2,32]
			w_QuantizeLinear_Output = QuantizeLinear<axis=0, block_size=32, output_dtype=22>(w, w_scale)
			w_DequantizeLinear_Output = DequantizeLinear<axis=0, block_size=32>(w_QuantizeLinear_Output, w_scale)
			y = MatMul(x, w_DequantizeLinear_Output)`, discover.Options{Bits: 4, Block: 32, Style: spec.QDQ}},
		{"nf4", 21, matrix, `y = MatMul(x, w)`, `
			opset 21, IR 10
			w_nf4:uint4[64,32]
			w_scale:float[2,32]
			nf4_values:float[16]
			blocks_of_32:int32[64]
			w_nf4_Cast_Output = Cast<to=6>(w_nf4)
			w_nf4_Gather_Output = Gather(nf4_values, w_nf4_Cast_Output)
			w_scale_Gather_Output = Gather<axis=0>(w_scale, blocks_of_32)
			w = Mul(w_nf4_Gather_Output, w_scale_Gather_Output)
			y = MatMul(x, w)`, discover.Options{Format: spec.NF4, Block: 32}},
		{"nvfp4", 23, matrix, `y = MatMul(x, w)`, `
			opset 23, IR 11
			w_f4:float4e2m1[64,32]
			w_scale:float8e4m3fn[4,32]
			w_scale_2:float[]
			w_scale_DequantizeLinear_Output = DequantizeLinear(w_scale, w_scale_2)
			w = DequantizeLinear<axis=0, block_size=16>(w_f4, w_scale_DequantizeLinear_Output)
			y = MatMul(x, w)`, discover.Options{Format: spec.NVFP4}},
		{"fp8", 19, matrix, `y = MatMul(x, w)`, `
			opset 19, IR 9
			w_f8:float8e4m3fn[64,32]
			w_scale:float[32]
			w = DequantizeLinear<axis=1>(w_f8, w_scale)
			y = MatMul(x, w)`, discover.Options{Format: spec.FP8E4M3, Block: spec.PerChannel}},

		{"MatMulNBits", 17, matrix, `y = MatMul(x, w)`, `
			opset 17, IR 4
			w_i4:uint8[32,2,16]
			w_scale:float[32,2]
			y = MatMulNBits<K=64, N=32, bits=4, block_size=32, accuracy_level=4>(x, w_i4, w_scale)`, discover.Options{Bits: 4, Block: 32, Style: spec.NBits}},
		{"MatMulNBits of a Gemm with its bias", 17, matrix + " b:float[32]=1", `y = Gemm(x, w, b)`, `
			opset 17, IR 4
			w_i4:uint8[32,2,16]
			w_scale:float[32,2]
			b:float[32]
			y = MatMulNBits<K=64, N=32, bits=4, block_size=32, accuracy_level=4>(x, w_i4, w_scale, "", "", b)`, discover.Options{Bits: 4, Block: 32, Style: spec.NBits, Target: ort}},
		{"MatMulNBits without its bias", 17, matrix + " b:float[32]=1", `y = Gemm(x, w, b)`, `
			opset 17, IR 4
			w_i4:uint8[32,2,16]
			w_scale:float[32,2]
			b:float[32]
			w_MatMulNBits_Output = MatMulNBits<K=64, N=32, bits=4, block_size=32, accuracy_level=4>(x, w_i4, w_scale)
			y = Add(w_MatMulNBits_Output, b)`, discover.Options{Bits: 4, Block: 32, Style: spec.NBits, Target: ort, NoFoldBias: true}},
		{"MatMulNBits with zero points", 17, matrix, `y = MatMul(x, w)`, `
			opset 17, IR 4
			w_u4:uint8[32,2,16]
			w_scale:float[32,2]
			w_zp:uint8[32,1]
			y = MatMulNBits<K=64, N=32, bits=4, block_size=32, accuracy_level=4>(x, w_u4, w_scale, w_zp)`, discover.Options{Bits: 4, Block: 32, ZeroPoint: true, Style: spec.NBits, AccuracyLevel: 4}},
		{"GatherBlockQuantized and MatMulNBits", 17, "i:int64[3] w:float[64,32]=1,-2,3", `
			h = Gather(w, i)
			v = Transpose<perm=[1,0]>(w)
			y = MatMul(h, v)`, `
			opset 17, IR 4
			w_i4:uint8[64,1,16]
			w_scale:float[64,1]
			w_shape:int64[2]
			w_i4_Reshape_Output = Reshape(w_i4, w_shape)
			h = GatherBlockQuantized<gather_axis=0, quantize_axis=1, block_size=32, bits=4>(w_i4_Reshape_Output, i, w_scale)
			y = MatMulNBits<K=32, N=64, bits=4, block_size=32, accuracy_level=4>(h, w_i4, w_scale)`, discover.Options{Bits: 4, Block: 32, Style: spec.NBits}},
		{"MatMulBnb4", 17, matrix, `y = MatMul(x, w)`, `
			opset 17, IR 4
			w_nf4:uint8[1024]
			w_absmax:float[64]
			y = MatMulBnb4<K=64, N=32, block_size=32, quant_type=1>(x, w_nf4, w_absmax)`, discover.Options{Format: spec.NF4, Block: 32, Style: spec.NBits, Target: ort}},
		{"MatMulInteger", 17, matrix, `y = MatMul(x, w)`, `
			opset 17, IR 8
			w_i8:int8[64,32]
			w_scale:float[32]
			w_zp:int8[32]
			x_quantized, x_scale, x_zero_point = DynamicQuantizeLinear(x)
			y_integers = MatMulInteger(x_quantized, w_i8, x_zero_point, w_zp)
			y_floats = Cast<to=1>(y_integers)
			y_scale = Mul(x_scale, w_scale)
			y = Mul(y_floats, y_scale)`, discover.Options{Bits: 8, Block: spec.PerChannel, Activations: spec.Dynamic}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := quantized(t, graphtext.Model(t, c.opset, c.values, c.before, "y"), c.options)
			if got := show(m.Copy.Proto); got != graphtext.Unindent(c.after) {
				t.Errorf("got\n%swant\n%s", got, graphtext.Unindent(c.after))
			}
		})
	}
}

// Activations get pairs; stored weights and biases get codes. A Relu is removed if codes clip at
// the same value.
func TestStatic(t *testing.T) {
	static := func(codes actpairs.Codes, engine spec.Target, block int) discover.Options {
		r, err := rules.ParseRanges([]byte(`{"version": 1, "tensors": {"x": {"min": -1, "max": 1}, "h": {"min": -1, "max": 1}, "y": {"min": 0, "max": 1}}}`))
		if err != nil {
			t.Fatal(err)
		}
		e := target.Of(engine)
		return discover.Options{
			Ops: actpairs.Operators(), Activations: spec.Static, Bits: 8, Block: block, Target: e,
			Static: &discover.StaticOptions{Ranges: r, Codes: codes, Placement: e.Static.Placement},
		}
	}
	uint8s := actpairs.Codes{Type: dtype.Uint8}
	const values = "x:float[2,64] w:float[64,4]=1,-2,3 b:float[4]=1,2"
	for _, c := range []struct {
		name          string
		opset         int64
		values        string // besides the common ones
		before, after string
		options       discover.Options
	}{
		{"product, bias and Relu", 13, "", `
			h = Gemm(x, w, b)
			y = Relu(h)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[]
			w_zp:int8[]
			x_scale:float[]
			x_zero_point:uint8[]
			y_scale:float[]
			y_zero_point:uint8[]
			b_quantized:int32[4]
			b_quantized_scale:float[]
			b_quantized_zero_point:int32[]
			w = DequantizeLinear(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			b_DequantizeLinear_Output = DequantizeLinear(b_quantized, b_quantized_scale, b_quantized_zero_point)
			y_QuantizeLinear_Input = Gemm(x_DequantizeLinear_Output, w, b_DequantizeLinear_Output)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, y_scale, y_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, y_scale, y_zero_point)`, static(uint8s, spec.Portable, spec.PerTensor)},
		{"product with scales for channels", 13, "", `y = Gemm(x, w, b)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[4]
			w_zp:int8[4]
			x_scale:float[]
			x_zero_point:uint8[]
			y_scale:float[]
			y_zero_point:uint8[]
			b_quantized:int32[4]
			b_quantized_scale:float[4]
			b_quantized_zero_point:int32[4]
			w = DequantizeLinear<axis=1>(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			b_DequantizeLinear_Output = DequantizeLinear<axis=0>(b_quantized, b_quantized_scale, b_quantized_zero_point)
			y_QuantizeLinear_Input = Gemm(x_DequantizeLinear_Output, w, b_DequantizeLinear_Output)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, y_scale, y_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, y_scale, y_zero_point)`, static(uint8s, spec.Portable, spec.PerChannel)},
		{"stored addend of 16 bits", 13, "", `y = Add(x, b)`, `
			opset 21, IR 10
			w:float[64,4]
			b_quantized:uint16[4]
			b_scale:float[]
			b_zero_point:uint16[]
			x_scale:float[]
			x_zero_point:uint16[]
			y_scale:float[]
			y_zero_point:uint16[]
			b = DequantizeLinear(b_quantized, b_scale, b_zero_point)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			y_QuantizeLinear_Input = Add(x_DequantizeLinear_Output, b)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, y_scale, y_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, y_scale, y_zero_point)`, static(actpairs.Codes{Type: dtype.Uint16}, spec.Portable, spec.PerTensor)},
		{"TensorRT", 13, "", `
			h = Gemm(x, w, b)
			y = Relu(h)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[4]
			w_zp:int8[4]
			b:float[4]
			x_scale:float[]
			x_zero_point:int8[]
			w = DequantizeLinear<axis=1>(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			h = Gemm(x_DequantizeLinear_Output, w, b)
			y = Relu(h)`, static(actpairs.Codes{Type: dtype.Int8, Symmetric: true}, spec.TensorRT, spec.PerChannel)},
		{"moved elements", 13, "", `
			h = MatMul(x, w)
			y = Transpose(h)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[]
			w_zp:int8[]
			b:float[4]
			x_scale:float[]
			x_zero_point:uint8[]
			h_scale:float[]
			h_zero_point:uint8[]
			w = DequantizeLinear(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			h = MatMul(x_DequantizeLinear_Output, w)
			h_QuantizeLinear_Output = QuantizeLinear(h, h_scale, h_zero_point)
			h_DequantizeLinear_Output = DequantizeLinear(h_QuantizeLinear_Output, h_scale, h_zero_point)
			y_QuantizeLinear_Input = Transpose(h_DequantizeLinear_Output)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, h_scale, h_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, h_scale, h_zero_point)`, static(uint8s, spec.Portable, spec.PerTensor)},
		{"Clip goes with its ends", 13, " lo:float[]=0 hi:float[]=6", `
			h = MatMul(x, w)
			y = Clip(h, lo, hi)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[]
			w_zp:int8[]
			b:float[4]
			x_scale:float[]
			x_zero_point:uint8[]
			y_scale:float[]
			y_zero_point:uint8[]
			w = DequantizeLinear(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			y_QuantizeLinear_Input = MatMul(x_DequantizeLinear_Output, w)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, y_scale, y_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, y_scale, y_zero_point)`, static(uint8s, spec.Portable, spec.PerTensor)},
		{"Clip of an old opset stays", 10, "", `
			h = MatMul(x, w)
			y = Clip<min=0.5>(h)`, `
			opset 13, IR 7
			w_i8:int8[64,4]
			w_scale:float[4]
			w_zp:int8[4]
			b:float[4]
			min:float[]
			x_scale:float[]
			x_zero_point:uint8[]
			h_scale:float[]
			h_zero_point:uint8[]
			y_scale:float[]
			y_zero_point:uint8[]
			w = DequantizeLinear<axis=1>(w_i8, w_scale, w_zp)
			x_QuantizeLinear_Output = QuantizeLinear(x, x_scale, x_zero_point)
			x_DequantizeLinear_Output = DequantizeLinear(x_QuantizeLinear_Output, x_scale, x_zero_point)
			h = MatMul(x_DequantizeLinear_Output, w)
			h_QuantizeLinear_Output = QuantizeLinear(h, h_scale, h_zero_point)
			h_DequantizeLinear_Output = DequantizeLinear(h_QuantizeLinear_Output, h_scale, h_zero_point)
			y_QuantizeLinear_Input = Clip(h_DequantizeLinear_Output, min)
			y_QuantizeLinear_Output = QuantizeLinear(y_QuantizeLinear_Input, y_scale, y_zero_point)
			y = DequantizeLinear(y_QuantizeLinear_Output, y_scale, y_zero_point)`, static(uint8s, spec.Portable, spec.PerChannel)},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := graphtext.Model(t, c.opset, values+c.values, c.before, "y")
			if strings.Contains(c.before, "h = ") {
				before.Graph.ValueInfo = []*onnxpb.ValueInfoProto{{Name: new("h")}}
			}
			m := quantized(t, before, c.options)
			if declared, made := len(m.Copy.Proto.Graph.ValueInfo) > 0, strings.Contains(graphtext.Print(m.Copy.Proto.Graph.Node, nil), "h = "); declared != made {
				t.Errorf("h is declared: %v; it exists: %v", declared, made)
			}
			if got := show(m.Copy.Proto); got != graphtext.Unindent(c.after) {
				t.Errorf("got\n%swant\n%s", got, graphtext.Unindent(c.after))
			}
		})
	}
}

// The adapters of opsets know the rank behind a Constant that becomes codes: Softmax needs no Flatten.
func TestRankOfCodedConstant(t *testing.T) {
	r, err := rules.ParseRanges([]byte(`{"version": 1, "tensors": {"x": {"min": -1, "max": 1}, "h": {"min": -1, "max": 1}, "y": {"min": 0, "max": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	e := target.Of(spec.Portable)
	before := graphtext.Model(t, 12, "x:float[2,64] b:float[64]=1,2", `
		h = Add(x, b)
		y = Softmax<axis=1>(h)`, "y")
	stored := before.Graph.Initializer[0]
	before.Graph.Initializer = nil
	before.Graph.Node = append([]*onnxpb.NodeProto{{
		OpType: new("Constant"), Output: []string{"b"},
		Attribute: []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: stored}},
	}}, before.Graph.Node...)
	m := quantized(t, before, discover.Options{
		Ops: actpairs.Operators(), Activations: spec.Static, Bits: 8, Block: spec.PerTensor, Target: e,
		Static: &discover.StaticOptions{Ranges: r, Codes: actpairs.Codes{Type: dtype.Uint16}, Placement: e.Static.Placement},
	})
	got := show(m.Copy.Proto)
	if !strings.Contains(got, "b_quantized:uint16[64]") || !strings.Contains(got, "Softmax") || strings.Contains(got, "Flatten") {
		t.Errorf("got\n%s", got)
	}
}

// A weight may also be the default of an input, a Constant node, or lie in a function or a branch.
func TestPlaces(t *testing.T) {
	blocks := discover.Options{Bits: 4, Block: 32}
	product := modeltest.Node("MatMul", "y", "x w")
	inner := modeltest.GraphAttr("then_branch", modeltest.Tensors{modeltest.Floats("v", 64, 32)}, modeltest.Node("MatMul", "b", "x v"))
	other := modeltest.GraphAttr("else_branch", nil, modeltest.Node("MatMul", "d", "x w"))
	byDefault := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, modeltest.Nodes{product}).Proto
	byDefault.IrVersion = new(int64(3)) // at which stored tensors must be inputs
	byDefault.Graph.Input = append(byDefault.Graph.Input, &onnxpb.ValueInfoProto{Name: new("w"), Type: byDefault.Graph.Input[0].Type})
	for _, c := range []struct {
		name    string
		model   *onnxpb.ModelProto
		options discover.Options
		graph   string
		body    string // of the function
	}{
		{"default of an input", byDefault, discover.Options{Bits: 4, Block: 32, Style: spec.NBits}, `
			opset 17, IR 4
			w_i4:uint8[32,2,16]
			w_scale:float[32,2]
			y = MatMulNBits<K=64, N=32, bits=4, block_size=32, accuracy_level=4>(x, w_i4, w_scale)`, ""},
		{"Constant", modeltest.Model(nil, modeltest.Nodes{modeltest.ConstantNode("w", modeltest.Floats("", 64, 32)), product}).Proto, blocks, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[2,32]
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			y = MatMul(x, w)`, ""},
		{"function", modeltest.Model(nil, modeltest.Nodes{modeltest.Node("local.f", "y", "x")},
			modeltest.Function("f", "x", "y", modeltest.ConstantNode("w", modeltest.Floats("", 64, 32)), product)).Proto, blocks, `
			opset 21, IR 10
			y = f(x)`, `
			w_i4 = Constant<value=[]>()
			w_scale = Constant<value=[]>()
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			y = MatMul(x, w)`},
		{"branches", modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32), modeltest.Zeros("c", dtype.Bool)},
			modeltest.Nodes{modeltest.Node("If", "y", "c", inner, other)}).Proto, blocks, `
			opset 21, IR 10
			w_i4:int4[64,32]
			w_scale:float[2,32]
			c:bool[]
			w = DequantizeLinear<axis=0, block_size=32>(w_i4, w_scale)
			y = If<then_branch={}, else_branch={}>(c)
			() => (b)
			v = DequantizeLinear<axis=0, block_size=32>([], [])
			b = MatMul(x, v)
			() => (d)
			d = MatMul(x, w)`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := quantized(t, c.model, c.options).Copy.Proto
			if got := graphtext.Unindent(show(p)); got != graphtext.Unindent(c.graph) {
				t.Errorf("got\n%swant\n%s", got, graphtext.Unindent(c.graph))
			}
			for _, f := range p.Functions {
				if got := graphtext.Print(f.Node, nil); got != graphtext.Unindent(c.body) {
					t.Errorf("in the function: got\n%swant\n%s", got, graphtext.Unindent(c.body))
				}
			}
		})
	}
}

// Codes take over the documentation of the weight. Bytes is the size of codes and scales.
func TestWeight(t *testing.T) {
	m := graphtext.Model(t, 21, "x:float[2,64] w:float[64,32]=1,-2,3", "y = MatMul(x, w)", "y")
	m.Graph.Initializer[0].DocString = new("the weight")
	made := quantized(t, m, discover.Options{Bits: 4, Block: 32})
	if len(made.Weights) != 1 {
		t.Fatalf("%d weights", len(made.Weights))
	}
	w := made.Weights[0]
	if got := w.Tensors.Codes.GetDocString(); got != "the weight" {
		t.Errorf("documentation %q", got)
	}
	if got, want := w.Bytes(), int64(64*32/2+2*32*4); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if w.Growth.Own > -64*32*4+64*32/2+2*32*4+500 || w.Growth.Own < -64*32*4 {
		t.Errorf("the output grows by %d bytes", w.Growth.Own)
	}
}

// Losses names the operators that ONNX Runtime runs at the opset of the input but not at the opset
// of the output.
func TestLosses(t *testing.T) {
	ort := target.Of(spec.ORT)
	for _, c := range []struct {
		format spec.Format
		opset  int64 // of the input
		want   []rewrite.Loss
	}{
		{spec.Int4, 15, nil}, // raised to 21
		{spec.NVFP4, 15, []rewrite.Loss{{Runtime: ort, Op: "Bernoulli", Opset: 22}}},
		{spec.NVFP4, 22, nil}, // it did not run before
	} {
		m := graphtext.Model(t, c.opset, "x:float[2,64] w:float[64,32]=1,-2,3", `
			h = MatMul(x, w)
			y = Bernoulli(h)`, "y")
		made := quantized(t, m, discover.Options{Format: c.format, Style: spec.DQ})
		if got := rewrite.Losses(made.Copy, ort); !slices.Equal(got, c.want) {
			t.Errorf("%s at opset %d: %v, want %v", c.format, c.opset, got, c.want)
		}
	}
}
