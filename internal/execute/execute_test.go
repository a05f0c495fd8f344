package execute

import (
	"bytes"
	"fmt"
	"math"
	"os"
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
	if err := checkType(&Tensor{DType: dtype.Float32, Dims: []int64{3, 8}}, m.Proto.Graph.Input[0]); err != nil {
		t.Error(err)
	}
	for _, of := range []dtype.DType{dtype.Float8E4M3FN, 14, 15} { // complex numbers
		typ.ElemType = proto.Int32(int32(of))
		if _, err := Inputs(m, InputOptions{}); err == nil || !strings.Contains(err.Error(), "no random inputs") {
			t.Errorf("%v: %v", of, err)
		}
	}
}

func TestInputsFromFiles(t *testing.T) {
	m := opened(t, "plain") // x [m, k], z [k, n]
	folder := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pb := func(name string, x ...float32) string {
		raw, err := proto.Marshal(&onnxpb.TensorProto{Name: &name, DataType: proto.Int32(1), Dims: []int64{1, int64(len(x))}, FloatData: x})
		if err != nil {
			t.Fatal(err)
		}
		return file("f"+name+".pb", raw)
	}
	header := "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }"
	npy := file("z.npy", fmt.Appendf(nil, "\x93NUMPY\x01\x00\x46\x00%-69s\n\x00\x00\x80\x3f\x00\x00\x00\x40", header))
	for _, files := range [][]string{{npy, pb("x", 3, 4)}, {pb("x", 3, 4), npy}, {npy, pb("", 3, 4)}} {
		inputs, err := Inputs(m, InputOptions{Files: files})
		if err != nil {
			t.Fatal(err)
		}
		if inputs[0].Name != "x" || !slices.Equal(inputs[0].Float32s(), []float32{3, 4}) || !slices.Equal(inputs[1].Float32s(), []float32{1, 2}) {
			t.Errorf("%v: %v %v", files, inputs[0].Float32s(), inputs[1].Float32s())
		}
	}
	for says, files := range map[string][]string{
		"1 tensors, but":                {npy},
		"missing.npy":                   {npy, "missing.npy"},
		"not a TensorProto":             {npy, file("bad.pb", []byte("\xff"))},
		"4 bytes for FLOAT [1000 1000]": {npy, file("short.pb", []byte("\x08\xe8\x07\x08\xe8\x07\x10\x01\x4a\x04abcd"))},
		"product of the dimensions":     {npy, file("huge.pb", []byte("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x10\x01\x25\x00\x00\x00\x00"))},
	} {
		_, err := Inputs(m, InputOptions{Files: files})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want one that says %s", err, says)
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
		got, err := Compare(test.a, test.b)
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
	if _, err := Compare(floats(t, 1), floats(t, 1, 2)); err == nil {
		t.Error("other dims are no error")
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
