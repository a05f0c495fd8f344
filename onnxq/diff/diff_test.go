package diff_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/diff"
	"onnxquant/testmodels"
)

func different(t *testing.T, a, b string) *diff.Difference {
	t.Helper()
	d, err := diff.Models(context.Background(), modeltest.Open(t, a), modeltest.Open(t, b), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.Equal != (len(d.Changes) == 0) {
		t.Errorf("equal is %v with %d changes", d.Equal, len(d.Changes))
	}
	return d
}

func TestDiffOfEqualModels(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		path := modeltest.Build(t, kind.Name)
		d := different(t, path, path)
		if !d.Equal {
			t.Errorf("%s differs from itself: %+v", kind.Name, d.Changes)
		}
		if d.Nodes.A == 0 || d.Nodes.Equal != d.Nodes.A || d.Initializers.Equal != d.Initializers.B {
			t.Errorf("%s: %+v", kind.Name, d)
		}
	}
}

// Where contents lie makes no difference.
func TestDiffOfStorage(t *testing.T) {
	d := different(t, modeltest.Build(t, "mlp"), modeltest.Build(t, "external"))
	if !d.Equal || d.Initializers != (diff.Count{A: 6, B: 6, Equal: 6}) {
		t.Errorf("%+v", d)
	}
}

func TestDiff(t *testing.T) {
	for _, test := range []struct {
		kind string
		edit func(m *onnxpb.ModelProto)
		want diff.Change
	}{
		{"mlp", func(m *onnxpb.ModelProto) { m.Graph.Initializer[0].RawData[99] ^= 1 },
			diff.Change{Kind: diff.Changed, Where: `initializer "w0"`, Field: "contents", A: "FLOAT [64 96]", B: "different from byte 99 on", Contents: true}},
		{"mlp", func(m *onnxpb.ModelProto) { m.Graph.Initializer[0].Dims = []int64{96, 64} },
			diff.Change{Kind: diff.Changed, Where: `initializer "w0"`, Field: "tensor", A: "FLOAT [64 96]", B: "FLOAT [96 64]"}},
		{"mlp", func(m *onnxpb.ModelProto) { m.OpsetImport[0].Version = proto.Int64(22) },
			diff.Change{Kind: diff.Changed, Where: `opset_import "ai.onnx"`, Field: "version", A: "21", B: "22"}},
		{"mlp", func(m *onnxpb.ModelProto) {
			m.MetadataProps = append(m.MetadataProps, &onnxpb.StringStringEntryProto{Key: proto.String("author"), Value: proto.String("a\nb")})
		}, diff.Change{Kind: diff.Added, Where: `metadata_prop "author"`, B: `"a\nb"`}},
		{"mlp", func(m *onnxpb.ModelProto) { m.Graph.Node[2].OpType = proto.String("Tanh") },
			diff.Change{Kind: diff.Changed, Where: `node "h0" (Relu)`, Field: "op_type", A: `"Relu"`, B: `"Tanh"`}},
		{"mlp", func(m *onnxpb.ModelProto) { m.Graph.Node[2].Input[0] = "m0" },
			diff.Change{Kind: diff.Changed, Where: `node "h0" (Relu)`, Field: "input", A: `["a0"]`, B: `["m0"]`}},
		{"mlp", func(m *onnxpb.ModelProto) {
			m.Graph.Input[0].Type.GetTensorType().Shape.Dim[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 7}
		}, diff.Change{Kind: diff.Changed, Where: `input "x"`, Field: "type", A: "FLOAT [batch 64]", B: "FLOAT [7 64]"}},
		{"mlp", func(m *onnxpb.ModelProto) {
			n := m.Graph.Node
			n[0], n[2] = n[2], n[0]
		}, diff.Change{Kind: diff.Moved, Where: "model", Field: "node", A: "2 of 8 stand elsewhere in the list"}},
		{"mlp", func(m *onnxpb.ModelProto) { m.Graph.ProtoReflect().SetUnknown([]byte{0xa0, 0x06, 1}) },
			diff.Change{Kind: diff.Changed, Where: "model", Field: "unknown fields", A: "0 bytes", B: "3 bytes"}},
		{"gemm_transb", func(m *onnxpb.ModelProto) { m.Graph.Node[0].Attribute = nil },
			diff.Change{Kind: diff.Removed, Where: `node "y" (Gemm): attribute "transB"`, A: "1"}},
		{"if", func(m *onnxpb.ModelProto) {
			m.Graph.Node[1].Attribute[0].G.Node[1].OpType = proto.String("Abs")
		}, diff.Change{Kind: diff.Changed, Where: `node "y" (If): attribute "then_branch": node "then_y" (Relu)`, Field: "op_type", A: `"Relu"`, B: `"Abs"`}},
	} {
		m, err := testmodels.Build(test.kind, 1)
		if err != nil {
			t.Fatal(err)
		}
		test.edit(m.Proto)
		d := different(t, modeltest.Build(t, test.kind), modeltest.Write(t, m))
		if len(d.Changes) != 1 || d.Changes[0] != test.want {
			t.Errorf("changes %+v, want %+v", d.Changes, test.want)
		}
	}
}

func TestDiffOfQuantized(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})
	d := different(t, in, out)
	for _, want := range []diff.Change{
		{Kind: diff.Removed, Where: `initializer "w0"`, A: "FLOAT [64 96]"},
		{Kind: diff.Added, Where: `initializer "w0_i4"`, B: "INT4 [64 96]"},
		{Kind: diff.Added, Where: `node "w0" (DequantizeLinear)`, B: `DequantizeLinear of "w0_i4", "w0_scale"`},
	} {
		if !slices.Contains(d.Changes, want) {
			t.Errorf("no %+v in %+v", want, d.Changes)
		}
	}
	if d.Nodes.Equal != d.Nodes.A || d.Nodes.B != d.Nodes.A+3 {
		t.Errorf("nodes %+v", d.Nodes)
	}
}

func TestDiffStops(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := diff.Models(ctx, modeltest.Open(t, path), modeltest.Open(t, path), nil); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("error %v", err)
	}
}
