package execute

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/testmodels"
)

func opened(t *testing.T, kind string) *modelfile.Model {
	t.Helper()
	m, err := testmodels.Build(kind, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	file, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestRandomInputs(t *testing.T) {
	inputs, err := Inputs(opened(t, "tied"), InputOptions{Seed: 1, Dims: map[string]int64{"length": 500}})
	if err != nil {
		t.Fatal(err)
	}
	ids := inputs[0].Int64s()
	if inputs[0].Name != "ids" || len(ids) != 500 || slices.Min(ids) < 0 || slices.Max(ids) > 99 || slices.Max(ids) < 90 {
		t.Errorf("%s: %v", inputs[0].Name, ids)
	}
	again, _ := Inputs(opened(t, "tied"), InputOptions{Seed: 1, Dims: map[string]int64{"length": 500}})
	other, _ := Inputs(opened(t, "tied"), InputOptions{Seed: 2, Dims: map[string]int64{"length": 500}})
	if !bytes.Equal(again[0].Data, inputs[0].Data) || bytes.Equal(other[0].Data, inputs[0].Data) {
		t.Error("a seed does not decide what the inputs are")
	}
	for _, kind := range testmodels.Kinds() {
		if _, err := Inputs(opened(t, kind.Name), InputOptions{}); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// A dimension of -1 has no fixed size. There are no random numbers of every type.
func TestUnusualInputs(t *testing.T) {
	m := opened(t, "plain") // x [m, k]
	typ := m.Proto.Graph.Input[0].Type.GetTensorType()
	typ.Shape.Dim[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: -1}
	inputs, err := Inputs(m, InputOptions{})
	if err != nil || inputs[0].Dims[0] != 2 {
		t.Errorf("%v, %v", inputs, err)
	}
	for _, of := range []dtype.DType{dtype.Float8E4M3FN, 14, 15} { // complex numbers
		typ.ElemType = proto.Int32(int32(of))
		if _, err := Inputs(m, InputOptions{}); err == nil || !strings.Contains(err.Error(), "no random inputs") {
			t.Errorf("%v: %v", of, err)
		}
	}
}

func TestSizesOfNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		first bool
		want  int64
	}{
		{"batch", true, 3}, {"seq", false, 8}, {"", false, 8}, {"past_length", false, 1}, {"total_sequence_length", false, 9},
		{"past_length + 1", false, 2}, {"past_length + sequence_length", false, 9}, {"given + seq", false, 15}, {"batch_size + 0", true, 8},
		{"a + b + c + d", false, 8}, {"+", false, 16}, {"99999 + 1", false, 9}, {"-1 + 2", false, 10},
	} {
		g := &generator{sizes: map[string]int64{"given": 7}, usual: Usual{3, 1, 8}}
		if got := g.named(c.name, c.first); got != c.want {
			t.Errorf("%q: %d, want %d", c.name, got, c.want)
		}
	}
}

func floats(t *testing.T, x ...float32) []*Tensor {
	t.Helper()
	v, err := FromFloat32s(dtype.Float32, []int64{int64(len(x))}, x)
	if err != nil {
		t.Fatal(err)
	}
	return []*Tensor{v}
}

func TestCompare(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		a, b []*Tensor
		want Comparison
	}{
		{floats(t, 1, -2, inf, nan), floats(t, 1, -2, inf, nan), Comparison{SQNR: 999, Cosine: 1}},
		{floats(t, 0, 0), floats(t, 0, 0), Comparison{SQNR: 999, Cosine: 1}},
		{floats(t, 3, 4), floats(t, 3, 4.5), Comparison{MaxError: 0.5, Relative: 0.125, SQNR: 20, Cosine: 27 / (5 * math.Sqrt(29.25))}},
		{floats(t, 1, 2, nan), floats(t, 1, inf, 3), Comparison{SQNR: 999, Cosine: 1, Broken: 2}},
		{floats(t, 1, 2), floats(t, nan, nan), Comparison{SQNR: -999, Broken: 2}},
		{floats(t, 0), floats(t, 1), Comparison{MaxError: 1, Relative: math.MaxFloat64, SQNR: -999}},
	} {
		got, err := Compare([][]*Tensor{test.a}, [][]*Tensor{test.b})
		if err != nil {
			t.Fatal(err)
		}
		c := got[0]
		c.DType, c.Dims = "", nil
		if math.Abs(c.SQNR-test.want.SQNR) < 1e-9 && math.Abs(c.Cosine-test.want.Cosine) < 1e-9 {
			c.SQNR, c.Cosine = test.want.SQNR, test.want.Cosine
		}
		if c.MaxError != test.want.MaxError || c.Relative != test.want.Relative || c.SQNR != test.want.SQNR || c.Cosine != test.want.Cosine || c.Broken != test.want.Broken {
			t.Errorf("%+v, want %+v", c, test.want)
		}
	}
	if _, err := Compare([][]*Tensor{floats(t, 1)}, [][]*Tensor{floats(t, 1, 2)}); err == nil {
		t.Error("other dims are no error")
	}
	// Several runs are compared as one.
	c, err := Compare([][]*Tensor{floats(t, 3), floats(t, 4)}, [][]*Tensor{floats(t, 3), floats(t, 4.5)})
	if err != nil || math.Abs(c[0].SQNR-20) > 1e-9 || c[0].Elements != 2 || c[0].Relative != 0.125 {
		t.Errorf("two runs: %+v, %v", c, err)
	}
}

// Types keep their values on the way through both kinds of numbers.
func TestTensors(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Uint64} {
		v, err := FromInt64s(typ, []int64{3}, []int64{-1, 0, 127})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Int64s(), []int64{-1, 0, 127}) {
			t.Errorf("%v: %v", typ, v.Int64s())
		}
	}
	for _, typ := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		v, err := FromFloat64s(typ, []int64{3}, []float64{-1.5, 0, 96})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Float64s(), []float64{-1.5, 0, 96}) {
			t.Errorf("%v: %v", typ, v.Float64s())
		}
	}
	if _, err := New(dtype.Float32, []int64{1 << 40}); err == nil {
		t.Error("4 TiB are no error")
	}
}

// Of several dimensions that no input has, the same one is named each time.
func TestUnknownDimensions(t *testing.T) {
	for range 20 {
		_, err := Inputs(opened(t, "tied"), InputOptions{Dims: map[string]int64{"b": 1, "a": 1, "c": 1, "d": 1}})
		if err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Fatalf("%v, want one about a", err)
		}
	}
}
