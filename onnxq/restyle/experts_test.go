package restyle_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// mixture is a model of one MoE with 3 experts, 64 inputs and 96 hidden units.
func mixture(t *testing.T, inputs string, attrs ...*onnxpb.AttributeProto) string {
	fc1 := int64(96)
	if slices.ContainsFunc(attrs, func(a *onnxpb.AttributeProto) bool { return string(a.GetS()) == "swiglu" }) {
		fc1 *= 2
	}
	tensors := modeltest.Tensors{
		modeltest.Floats("fc1", 3, fc1, 64), modeltest.Floats("fc2", 3, 64, 96), modeltest.Floats("fc3", 3, 96, 64),
		modeltest.Floats("b1", 3, fc1), modeltest.Floats("b2", 3, 64), modeltest.Floats("b3", 3, 96),
	}
	tensors = slices.DeleteFunc(tensors, func(w *onnxpb.TensorProto) bool { return !slices.Contains(strings.Fields(inputs), w.GetName()) })
	attrs = append(attrs, modeltest.IntAttr("k", 2))
	nodes := modeltest.Nodes{modeltest.Node("MatMul", "r", "x gate"), modeltest.Node("com.microsoft.MoE", "y", inputs, attrs...)}
	return modeltest.Write(t, modeltest.Model(append(tensors, modeltest.Floats("gate", 64, 3)), nodes))
}

func onlyNode(t *testing.T, m *onnxq.Model, op string) *onnxpb.NodeProto {
	t.Helper()
	nodes := m.Graph().File.Proto.Graph.Node
	i := slices.IndexFunc(nodes, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == op })
	if i < 0 {
		t.Fatalf("no %s among %v", op, operators(m))
	}
	return nodes[i]
}

// A QMoE has the values of the DequantizeLinear form, in its order of inputs; restyle and dequantize lead back.
func TestExpertsThereAndBack(t *testing.T) {
	normalized, swiglu := modeltest.IntAttr("normalize_routing_weights", 1), modeltest.StringAttr("activation_type", "swiglu")
	for _, c := range []struct {
		inputs, want string // _: left out
		attrs        []*onnxpb.AttributeProto
	}{
		{"x r fc1 _ fc2", "x r C S _ C S", []*onnxpb.AttributeProto{normalized}},
		{"x r fc1 b1 fc2 b2", "x r C S b1 C S b2", []*onnxpb.AttributeProto{normalized, swiglu, modeltest.IntAttr("swiglu_fusion", 1)}},
		{"x r fc1 _ fc2 b2 fc3 b3", "x r C S _ C S b2 C S b3", []*onnxpb.AttributeProto{normalized}},
		{"x r fc1 b1 fc2 b2", "x r C S b1 C S b2 _ _ _ _ _ _ P", nil},
	} {
		for _, opts := range []onnxq.Options{
			{Block: 32}, {Block: 16, ZeroPoint: true}, {Bits: 8, Block: 32}, {Bits: 8, Block: 32, ZeroPoint: true}, {Bits: 2, Block: 32},
			{Block: spec.PerChannel}, {Block: spec.PerChannel, ZeroPoint: true}, {Bits: 8, Block: spec.PerChannel, ZeroPoint: true},
		} {
			t.Run(fmt.Sprintf("%s/%d bits/%s/zeros %v", c.inputs, opts.Bits, spec.BlockName(opts.Block), opts.ZeroPoint), func(t *testing.T) {
				opts.Ops, opts.MinElements = []string{"MoE"}, 1
				in, folder := mixture(t, c.inputs, c.attrs...), t.TempDir()
				path := func(name string) string { return filepath.Join(folder, name) }
				modeltest.Convert(t, in, path("dq"), opts)
				opts.Style = spec.NBits
				modeltest.Convert(t, in, path("nbits"), opts)
				nbits := modeltest.Open(t, path("nbits"))
				checkExperts(t, onlyNode(t, nbits, "QMoE"), c.want, opts)
				sameWeights(t, modeltest.Open(t, path("dq")), nbits)

				for _, step := range []struct {
					from, to string
					style    spec.Style
				}{{"nbits", "dq2", spec.DQ}, {"dq2", "nbits2", spec.NBits}, {"dq", "nbits3", spec.NBits}} {
					if _, err := restyle.Restyle(context.Background(), path(step.from), path(step.to), step.style, restyle.Options{}); err != nil {
						t.Fatal(err)
					}
				}
				sameWeights(t, modeltest.Open(t, path("dq2")), nbits)
				for _, name := range []string{"nbits2", "nbits3"} {
					again := modeltest.Open(t, path(name))
					onlyNode(t, again, "QMoE")
					sameWeights(t, again, nbits)
				}

				if _, err := restyle.Dequantize(context.Background(), path("nbits"), path("float"), restyle.Options{}); err != nil {
					t.Fatal(err)
				}
				float, before := modeltest.Open(t, path("float")), modeltest.Open(t, in)
				if got, want := operators(float), operators(before); !slices.Equal(got, want) {
					t.Errorf("dequantized operators %v, want %v", got, want)
				}
				if got, want := onlyNode(t, float, "MoE").String(), onlyNode(t, before, "MoE").String(); got != want {
					t.Errorf("dequantized: %s, want %s", got, want)
				}
			})
		}
	}
}

// checkExperts checks the inputs and attributes of a QMoE. In want, C, S and P are codes, scales and router_weights;
// with zero points three inputs follow the biases.
func checkExperts(t *testing.T, n *onnxpb.NodeProto, want string, opts onnxq.Options) {
	t.Helper()
	expected := strings.Fields(want)
	if opts.ZeroPoint {
		for len(expected) < 13 {
			expected = append(expected, "_")
		}
		expected[11], expected[12] = "Z", "Z"
		if expected[8] != "_" {
			expected = append(expected[:13], append([]string{"Z"}, expected[min(14, len(expected)):]...)...)
		}
	}
	kinds := map[string]string{"_i4": "C", "_u4": "C", "_i8": "C", "_u8": "C", "_i2": "C", "_zp": "Z", "_scale": "S", "_Softmax_Output": "P", "": "_"}
	var got []string
	for _, name := range n.Input {
		kind := name
		for suffix, letter := range kinds {
			if suffix != "" && strings.HasSuffix(name, suffix) || suffix == "" && name == "" {
				kind = letter
			}
		}
		got = append(got, kind)
	}
	if !slices.Equal(got, expected) {
		t.Errorf("inputs %v, want %v", n.Input, expected)
	}
	attrs := map[string]int64{"expert_weight_bits": int64(max(opts.Bits, 0)), "weights_prepacked": 0, "k": 2}
	if opts.Bits == 0 {
		attrs["expert_weight_bits"] = 4
	}
	if opts.Block > 0 {
		attrs["block_size"] = int64(opts.Block)
	}
	if opts.Block > 0 && opts.Bits == 0 {
		attrs["accuracy_level"] = 4
	}
	for name, v := range attrs {
		if a := graph.Attribute(n, name); a == nil || a.GetI() != v {
			t.Errorf("%s is %v, want %d", name, a, v)
		}
	}
	if a := graph.Attribute(n, "block_size"); a != nil && opts.Block < 0 {
		t.Errorf("block_size %d with one scale per channel", a.GetI())
	}
}

// sameWeights compares the decoded weights of two models.
func sameWeights(t *testing.T, a, b *onnxq.Model) {
	t.Helper()
	want, got := recognize.Weights(a.Graph()), recognize.Weights(b.Graph())
	if len(want) < 2 || len(want) != len(got) {
		t.Fatalf("%d and %d weights", len(want), len(got))
	}
	for i := range want {
		name := strings.TrimRight(want[i].PlainName(), "_")
		j := slices.IndexFunc(got, func(w *recognize.Weight) bool { return strings.TrimRight(w.PlainName(), "_") == name })
		if j < 0 {
			t.Fatalf("no weight %s", name)
		}
		if !slices.Equal(decodedAll(t, want[i]), decodedAll(t, got[j])) {
			t.Errorf("%s decodes to other values", name)
		}
	}
}

// Weights of a MoE that a QMoE cannot hold, or would compute wrongly with, are decoded; a note says why.
func TestNoQMoE(t *testing.T) {
	integer, text := modeltest.IntAttr, modeltest.StringAttr
	normalized := integer("normalize_routing_weights", 1)
	for _, c := range []struct {
		attrs []*onnxpb.AttributeProto
		opts  onnxq.Options
		note  string
	}{
		{[]*onnxpb.AttributeProto{normalized, integer("swiglu_fusion", 1)}, onnxq.Options{}, "no QMoE: ONNX Runtime's QMoE computes wrongly with swiglu_fusion"},
		{[]*onnxpb.AttributeProto{integer("use_sparse_mixer", 1)}, onnxq.Options{}, "no QMoE: QMoE and MoE weigh experts differently with use_sparse_mixer; ONNX Runtime decodes it once"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Target: spec.ORTWeb}, "no QMoE: target ort-web has no QMoE"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Exclude: []string{"fc2"}}, `no QMoE: input 4 of MoE node "y" is not quantized alike`},
		{[]*onnxpb.AttributeProto{normalized, text("activation_type", "swiglu")}, onnxq.Options{Exclude: []string{"fc2"}}, "is not quantized alike"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Style: spec.NBits, Block: 64}, "block 32, not block 64: QMoE takes one block size"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Bits: 8, Block: 32}, "it is read by com.microsoft.MoE:2"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Bits: 8, Block: 32, AccuracyLevel: spec.AccuracyFloat32}, "accuracy_level changes nothing"},
		{[]*onnxpb.AttributeProto{normalized}, onnxq.Options{Bits: 8, Block: spec.PerChannel}, "ONNX Runtime decodes experts with one scale per channel"},
	} {
		c.opts.Ops, c.opts.MinElements = []string{"MoE"}, 1
		if c.opts.Target == "" {
			c.opts.Target = spec.ORT
		}
		p, err := modeltest.Open(t, mixture(t, "x r fc1 _ fc2", c.attrs...)).Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.Tensors {
			if w.Name == "fc1" && !strings.Contains(w.Note, c.note) {
				t.Errorf("%s: %q, want %q", w.Name, w.Note, c.note)
			}
			if strings.Contains(w.Note, "decodes it once") && strings.Contains(strings.Join(p.Warnings, "\n"), "at every run") {
				t.Errorf("%s: %q, and the warnings %q", w.Name, w.Note, p.Warnings)
			}
		}
	}
}

// Weights of a QMoE may have the same codes, with other scales.
func TestExpertsWithTheSameCodes(t *testing.T) {
	tensors := modeltest.Tensors{modeltest.Zeros("codes", dtype.Uint8, 3, 64, 32), modeltest.Floats("s1", 3, 64, 2), modeltest.Floats("s2", 3, 64, 2), modeltest.Floats("gate", 64, 3)}
	slices.Reverse(tensors[2].FloatData)
	nodes := modeltest.Nodes{modeltest.Node("MatMul", "r", "x gate"), modeltest.Node("com.microsoft.QMoE", "y", "x r codes s1 _ codes s2",
		modeltest.IntAttr("k", 2), modeltest.IntAttr("normalize_routing_weights", 1), modeltest.IntAttr("expert_weight_bits", 4), modeltest.IntAttr("block_size", 32))}
	float := filepath.Join(t.TempDir(), "float")
	if _, err := restyle.Dequantize(context.Background(), modeltest.Write(t, modeltest.Model(tensors, nodes)), float, restyle.Options{}); err != nil {
		t.Fatal(err)
	}
	m := modeltest.Open(t, float)
	n := onlyNode(t, m, "MoE")
	for input, scales := range map[int]*onnxpb.TensorProto{2: tensors[1], 4: tensors[2]} {
		_, content := modeltest.Tensor(t, m, n.Input[input])
		got, scale := math.Float32frombits(binary.LittleEndian.Uint32(content)), scales.FloatData[0]
		if got != -8*scale {
			t.Errorf("input %d: %s begins with %g, want %g", input, n.Input[input], got, -8*scale)
		}
	}
}

// A block size may be as large as a number can be.
func TestExpertsInHugeBlocks(t *testing.T) {
	tensors := modeltest.Tensors{modeltest.Zeros("codes", dtype.Uint8, 3, 64, 32), modeltest.Floats("s", 3, 64, 0), modeltest.Floats("gate", 64, 3)}
	nodes := modeltest.Nodes{modeltest.Node("MatMul", "r", "x gate"), modeltest.Node("com.microsoft.QMoE", "y", "x r codes s _ codes s", modeltest.IntAttr("block_size", math.MaxInt64))}
	in := modeltest.Write(t, modeltest.Model(tensors, nodes))
	report, err := restyle.Dequantize(context.Background(), in, filepath.Join(t.TempDir(), "float"), restyle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Weights) != 1 || report.Weights[0].Changed || report.Weights[0].Reason == "" {
		t.Errorf("got %+v, want one weight that stays", report.Weights)
	}
}
