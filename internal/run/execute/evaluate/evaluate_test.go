package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/synth"
	"onnxquant/testmodels"
)

func written(t *testing.T, m *testmodels.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, path string, opts synth.Options) (in, out []*execute.Tensor, err error) {
	t.Helper()
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if in, err = synth.Inputs(m, opts); err != nil {
		t.Fatal(err)
	}
	out, err = Go.Run(context.Background(), path, in)
	return in, out, err
}

// Every test model runs, and its outputs have the type and the sizes that it
// declares.
func TestTestModels(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		m, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, out, err := run(t, written(t, m), synth.Options{Seed: 1})
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		for i, o := range m.Proto.Graph.Output {
			typ := o.Type.GetTensorType()
			if out[i].Name != o.GetName() || int32(out[i].DType) != typ.GetElemType() || len(out[i].Dims) != len(typ.Shape.Dim) {
				t.Errorf("%s: output %s is %v %v", kind.Name, out[i].Name, out[i].DType, out[i].Dims)
				continue
			}
			for k, d := range typ.Shape.Dim {
				if d.GetDimParam() == "" && d.GetDimValue() != out[i].Dims[k] {
					t.Errorf("%s: output dims %v", kind.Name, out[i].Dims)
				}
			}
		}
	}
}

// The numbers of a Gemm are those of its definition.
func TestGemm(t *testing.T) {
	m := testmodels.Gemm(3, 64, 24, true)
	in, out, err := run(t, written(t, m), synth.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	weight := func(i int) []float64 {
		w := m.Proto.Graph.Initializer[i]
		return (&execute.Tensor{DType: dtype.Float32, Dims: w.Dims, Data: w.RawData}).Float64s()
	}
	x, w, c, y := in[0].Float64s(), weight(0), weight(1), out[0].Float64s()
	for i := range 2 {
		for j := range 24 {
			want := c[j]
			for k := range 64 {
				want += x[i*64+k] * w[j*64+k]
			}
			if math.Abs(y[i*24+j]-want) > 1e-5 {
				t.Fatalf("y[%d,%d] = %v, want %v", i, j, y[i*24+j], want)
			}
		}
	}
}

// If takes the branch that its condition names.
func TestIf(t *testing.T) {
	m, err := testmodels.Build("if", 1)
	if err != nil {
		t.Fatal(err)
	}
	path := written(t, m)
	seen := map[bool]bool{}
	for seed := range uint64(16) {
		in, out, err := run(t, path, synth.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		then := in[0].Data[0] != 0
		seen[then] = true
		for _, v := range out[0].Float64s() {
			if then && v < 0 { // Relu's
				t.Fatalf("seed %d: %v", seed, v)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("conditions %v", seen)
	}
}

func TestRefusals(t *testing.T) {
	attr := func(name string, i int64) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &i}
	}
	for _, test := range []struct {
		edit func(g *onnxpb.GraphProto)
		says string
	}{
		{func(g *onnxpb.GraphProto) { g.Node[2].OpType = proto.String("Multinomial") }, `Multinomial node "Relu_h0"`},
		{func(g *onnxpb.GraphProto) { g.Node[0].Domain = proto.String("com.microsoft") }, `MatMul node "MatMul_m0"`},
		{func(g *onnxpb.GraphProto) { // whose body reads what the body is given
			body := &onnxpb.GraphProto{Input: []*onnxpb.ValueInfoProto{{Name: proto.String("given")}}, Output: []*onnxpb.ValueInfoProto{{Name: proto.String("given")}}}
			g.Node[2].OpType = proto.String("While")
			g.Node[2].Attribute = []*onnxpb.AttributeProto{{Name: proto.String("body"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: body}}
		}, `While node "Relu_h0": not supported`},
		{func(g *onnxpb.GraphProto) {
			g.Node[1].Attribute = append(g.Node[1].Attribute, attr("broadcast", 1))
		}, `attribute "broadcast"`},
		{func(g *onnxpb.GraphProto) {
			g.Node[2].OpType, g.Node[2].Input = proto.String("Expand"), append(g.Node[2].Input, "n")
			raw := []byte{0, 0, 0, 0, 0, 1, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0} // 2^40, 96
			g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String("n"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{2}, RawData: raw})
		}, "larger than 256 MiB"},
		{func(g *onnxpb.GraphProto) {
			raw := []byte{0, 0, 0, 12, 0, 0, 0, 0} // 192 Mi truth values
			g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String("n"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, RawData: raw})
			last := "n"
			for i, op := range []string{"ConstantOfShape", "Identity", "Identity", "Identity", "Identity", "Identity", "Identity"} {
				next := fmt.Sprint("big", i)
				n := &onnxpb.NodeProto{OpType: &op, Input: []string{last}, Output: []string{next}}
				if i == 0 {
					n.Attribute = []*onnxpb.AttributeProto{{Name: proto.String("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(),
						T: &onnxpb.TensorProto{DataType: proto.Int32(int32(onnxpb.TensorProto_BOOL)), Dims: []int64{1}, RawData: []byte{0}}}}
				}
				g.Node = append(g.Node, n)
				g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: &next, Type: g.Output[0].Type})
				last = next
			}
		}, "values of more than 1024 MiB at a time"},
	} {
		m := testmodels.MLP(1, 64, 96, 16)
		if test.says == "larger than 256 MiB" {
			m.Proto.Graph.Input[0].Type.GetTensorType().Shape.Dim[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1}
		}
		test.edit(m.Proto.Graph)
		_, _, err := run(t, written(t, m), synth.Options{})
		if !errors.Is(err, execute.ErrUnsupported) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("error %v, want one that says %s", err, test.says)
		}
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Go.Run(ctx, written(t, testmodels.MLP(1, 8, 8)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
