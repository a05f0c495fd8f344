package synth

import (
	"bytes"
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
	inputs, err := Inputs(opened(t, "tied"), Options{Seed: 1, Dims: map[string]int64{"length": 500}})
	if err != nil {
		t.Fatal(err)
	}
	list := inputs[0].Int64s()
	if inputs[0].Name != "ids" || len(list) != 500 || slices.Min(list) < 0 || slices.Max(list) > 99 || slices.Max(list) < 90 {
		t.Errorf("%s: %v", inputs[0].Name, list)
	}
	again, _ := Inputs(opened(t, "tied"), Options{Seed: 1, Dims: map[string]int64{"length": 500}})
	other, _ := Inputs(opened(t, "tied"), Options{Seed: 2, Dims: map[string]int64{"length": 500}})
	if !bytes.Equal(again[0].Data, inputs[0].Data) || bytes.Equal(other[0].Data, inputs[0].Data) {
		t.Error("a seed does not decide what the inputs are")
	}
	for _, kind := range testmodels.Kinds() {
		if _, err := Inputs(opened(t, kind.Name), Options{}); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// A dimension of -1 has no fixed size. There are no random numbers of every type.
func TestUnusualInputs(t *testing.T) {
	m := opened(t, "plain") // x [m, k]
	typ := m.Proto.Graph.Input[0].Type.GetTensorType()
	typ.Shape.Dim[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: -1}
	inputs, err := Inputs(m, Options{})
	if err != nil || inputs[0].Dims[0] != 2 {
		t.Errorf("%v, %v", inputs, err)
	}
	for _, of := range []dtype.DType{dtype.Float8E4M3FN, 14, 15} { // complex numbers
		typ.ElemType = proto.Int32(int32(of))
		if _, err := Inputs(m, Options{}); err == nil || !strings.Contains(err.Error(), "no random inputs") {
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
		f := newFitter(sizes{batch: 3, past: 1, sequence: 8}, map[string]int64{"given": 7})
		if got := f.size(c.name, c.first); got != c.want {
			t.Errorf("%q: %d, want %d", c.name, got, c.want)
		}
	}
}

// Of several dimensions that no input has, the same one is named each time.
func TestUnknownDimensions(t *testing.T) {
	for range 20 {
		_, err := Inputs(opened(t, "tied"), Options{Dims: map[string]int64{"b": 1, "a": 1, "c": 1, "d": 1}})
		if err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Fatalf("%v, want one about a", err)
		}
	}
}
