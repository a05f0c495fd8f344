package samples

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/modeltest"
)

// input describes an input: a dimension that is no number is symbolic.
func input(name string, typ dtype.DType, dims ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(typ)), Shape: shape}}}}
}

// withInputs makes a model with these inputs. It looks up "ids" in a table of 100 rows.
func withInputs(t *testing.T, inputs ...*onnxpb.ValueInfoProto) *modelfile.Model {
	t.Helper()
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("table", 100, 4)}, modeltest.Nodes{modeltest.Node("Gather", "y", "table ids")})
	m.Proto.Graph.Input = inputs
	file, err := modelfile.Open(modeltest.Write(t, m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func write(t *testing.T, folder, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// npyFile makes an .npy file of int64 or float32 elements that count from 0.
func npyFile(descr string, fortran bool, shape ...int64) []byte {
	order, n := "False", int64(1)
	if fortran {
		order = "True"
	}
	text := ""
	for _, d := range shape {
		text, n = text+fmt.Sprint(d)+",", n*d
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", descr, order, text)
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	b = append(b, header...)
	for i := range n {
		if descr == "<f4" {
			b, _ = binary.Append(b, binary.LittleEndian, float32(i))
		} else {
			b = binary.LittleEndian.AppendUint64(b, uint64(i))
		}
	}
	return b
}

func tensorProto(t *testing.T, name string, typ dtype.DType, dims ...int64) []byte {
	t.Helper()
	n, _ := dtype.Elements(dims)
	raw, err := proto.Marshal(&onnxpb.TensorProto{Name: &name, DataType: new(int32(typ)), Dims: dims, RawData: make([]byte, typ.Bytes(n))})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// all reads the samples, as text: the shape and the first element of each input.
func all(t *testing.T, s *Samples) (list []string) {
	t.Helper()
	for inputs, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, x := range inputs {
			text += fmt.Sprintf("%s%v", x.Name, x.Dims)
			if x.Len() > 0 {
				text += fmt.Sprintf("=%v ", x.Float64s()[0])
			}
		}
		list = append(list, strings.TrimSpace(text))
	}
	return list
}

func TestArrays(t *testing.T) {
	folder := t.TempDir()
	m := withInputs(t, input("x", dtype.Float32, "n", 2), input("state", dtype.Float32, 2, "n", 1), input("rate", dtype.Int64))
	x := write(t, folder, "x.npy", npyFile("<f4", false, 3, 2))
	state := write(t, folder, "state.npy", npyFile("<f4", false, 3, 2, 1, 1))
	rate := write(t, folder, "rate.npy", npyFile("<i8", false))
	want := []string{"x[1 2]=0 state[2 1 1]=0 rate[]=0", "x[1 2]=2 state[2 1 1]=2 rate[]=0", "x[1 2]=4 state[2 1 1]=4 rate[]=0"}
	s, err := Open(m, []string{rate, state, x}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // samples can be read again
		if got := all(t, s); !slices.Equal(got, want) || s.Len() != 3 {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s, err = Open(m, []string{folder}, 2); err != nil || !slices.Equal(all(t, s), want[:2]) {
		t.Errorf("the first two of the folder: %v", err)
	}
	// Two rows are a sample where the model fixes the axis; Fortran order is as good.
	write(t, folder, "state.npy", npyFile("<f4", true, 6, 1, 1))
	if s, err = Open(m, []string{folder}, 0); err != nil || !slices.Equal(all(t, s), want) {
		t.Errorf("rows in pairs: %v", err)
	}
}

// Arrays that fit the inputs as they are make one sample; names count before places. Others divide.
func TestOpenWhole(t *testing.T) {
	m := withInputs(t, input("x", dtype.Float32, "n", 2), input("z", dtype.Float32, 2, "m"))
	folder := t.TempDir()
	x := write(t, folder, "x.npy", npyFile("<f4", false, 3, 2))
	z := write(t, folder, "z.npy", npyFile("<f4", true, 2, 4))
	two := write(t, folder, "two/z.npy", npyFile("<f4", false, 2, 2, 4))
	a, b := write(t, folder, "a.npy", npyFile("<f4", false, 3, 2)), write(t, folder, "b.pb", tensorProto(t, "", dtype.Float32, 2, 4))
	row := write(t, folder, "row/x.npy", npyFile("<f4", false, 1, 2))
	for _, c := range []struct {
		files []string
		want  []string
	}{
		{[]string{z, x}, []string{"x[3 2]=0 z[2 4]=0"}},
		{[]string{x, b}, []string{"x[3 2]=0 z[2 4]=0"}},
		{[]string{a, b}, []string{"x[3 2]=0 z[2 4]=0"}},
		{[]string{row, two}, []string{"x[1 2]=0 z[2 4]=0", "x[1 2]=0 z[2 4]=8"}},
	} {
		s, err := OpenWhole(m, c.files, 0)
		if err != nil {
			t.Errorf("%v: %v", c.files, err)
			continue
		}
		if got := all(t, s); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.files, got, c.want)
		}
	}
}

// Files with a number at the end follow each other; folders of ONNX test data have inputs by
// number, and outputs, which are ignored.
func TestFolders(t *testing.T) {
	m := withInputs(t, input("x", dtype.Float32, "n", 2))
	folder := t.TempDir()
	write(t, folder, "x_0.npy", npyFile("<f4", false, 1, 2))
	write(t, folder, "x_1.npy", npyFile("<f4", false, 2, 2))
	write(t, folder, "README.md", nil)
	for _, set := range []string{"test_data_set_0", "test_data_set_1"} {
		write(t, folder, set+"/input_0.pb", tensorProto(t, "", dtype.Float32, 1, 2))
		write(t, folder, set+"/output_0.pb", tensorProto(t, "y", dtype.Float32, 7))
	}
	s, err := Open(m, []string{folder}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, s); len(got) != 5 || got[4] != "x[1 2]=2" {
		t.Errorf("%q", got)
	}
}

// Ids imply the other inputs of a language model.
func TestTokens(t *testing.T) {
	m := withInputs(t, input("ids", dtype.Int64, "b", "t"), input("attention_mask", dtype.Int64, "b", "total"), input("position_ids", dtype.Int64, "b", "t"),
		input("past_key_values.0.key", dtype.Float16, "b", 2, "past", 8), input("token_type_ids", dtype.Int32, "b", "t"), input("lengths", dtype.Int64, "b"))
	folder := t.TempDir()
	lines := write(t, folder, "text.jsonl", []byte("[5, 6, 7]\n\n{\"input_ids\": [8]}\n"))
	s, err := Open(m, []string{lines}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ids[1 3]=5 attention_mask[1 3]=1 position_ids[1 3]=0 past_key_values.0.key[1 2 0 8]token_type_ids[1 3]=0 lengths[1]=3",
		"ids[1 1]=8 attention_mask[1 1]=1 position_ids[1 1]=0 past_key_values.0.key[1 2 0 8]token_type_ids[1 1]=0 lengths[1]=1",
	}
	if got := all(t, s); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	array := write(t, folder, "arr_0.npy", npyFile("<i8", false, 2, 4))
	if s, err = Open(m, []string{array}, 0); err != nil || len(all(t, s)) != 2 {
		t.Errorf("an array: %v", err)
	}
	fixed := withInputs(t, input("ids", dtype.Int64, 1, 2))
	if s, err = Open(fixed, []string{lines}, 0); err != nil || !slices.Equal(all(t, s), []string{"ids[1 2]=5"}) {
		t.Errorf("a fixed length: %v", err)
	}
}

// Ids that are not looked up directly are known by their name alone.
func TestInputIDs(t *testing.T) {
	m := withInputs(t, input("input_ids", dtype.Int64, "b", "t"), input("attention_mask", dtype.Int64, "b", "t"))
	s, err := Open(m, []string{write(t, t.TempDir(), "a.jsonl", []byte("[5, 600]"))}, 0)
	if err != nil || !slices.Equal(all(t, s), []string{"input_ids[1 2]=5 attention_mask[1 2]=1"}) {
		t.Errorf("%v", err)
	}
	if _, err := NewLanguage(m); err == nil {
		t.Error("a language model of an unknown number of tokens")
	}
}

// The error of a model on token ids says how many they were, that of an interrupted run does not.
func TestFailed(t *testing.T) {
	ids := []*execute.Tensor{{Name: "ids", DType: dtype.Int64, Dims: []int64{1, 200}, Data: make([]byte, 8*200)}}
	for _, c := range []struct{ input, want string }{
		{"input_ids", "sample 3, of 200 token ids: too far; if the model takes fewer at a time, cut the samples"},
		{"x", "sample 3: too far"},
	} {
		s := &Samples{model: newModel(withInputs(t, input(c.input, dtype.Int64, "b", "t")))}
		if err := s.Failed(t.Context(), 3, ids, errors.New("too far")); err.Error() != c.want {
			t.Errorf("%s: %v", c.input, err)
		}
		stopped, stop := context.WithCancelCause(t.Context())
		stop(errors.New("interrupted"))
		if err := s.Failed(stopped, 3, ids, context.Cause(stopped)); err.Error() != "interrupted" {
			t.Errorf("%s, interrupted: %v", c.input, err)
		}
	}
}

// npz writes arrays of 3 × 2 to a file.
func npz(t *testing.T, folder string, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range names {
		w, err := z.Create(name + ".npy")
		if err == nil {
			_, err = w.Write(npyFile("<f4", false, 3, 2))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, folder, "arrays.npz", b.Bytes())
}

// idsFile is an .npy file of ids, rows of columns.
func idsFile(rows, columns int64, ids ...int64) []byte {
	raw := npyFile("<i8", false, rows, columns)
	raw = raw[:len(raw)-8*len(ids)]
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
	}
	return raw
}

// Models may be compared on ids that count from the end of the table.
func TestNegativeIDsOfVerify(t *testing.T) {
	ids := withInputs(t, input("ids", dtype.Int64, "b", "t"))
	for first, ok := range map[int64]bool{-100: true, -101: false} {
		path := write(t, t.TempDir(), "ids.npy", idsFile(2, 3, first, 6, 7, 5, 6, 7))
		if _, err := OpenWhole(ids, []string{path}, 0); (err == nil) != ok {
			t.Errorf("id %d: %v", first, err)
		}
	}
}

func TestErrors(t *testing.T) {
	folder := t.TempDir()
	language := withInputs(t, input("ids", dtype.Int64, "b", "t"), input("speaker", dtype.Float32, "b", 7))
	plain := withInputs(t, input("x", dtype.Float32, "n", 2), input("z", dtype.Float32, "n", 3))
	single := withInputs(t, input("x", dtype.Float32, "n", 2))
	empty := filepath.Join(folder, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	x := write(t, folder, "x.npy", npyFile("<f4", false, 3, 2))
	ids := withInputs(t, input("ids", dtype.Int64, "b", "t"))
	for says, test := range map[string]struct {
		m     *modelfile.Model
		files []string
	}{
		`no values for input "speaker", FLOAT [b, 7]`:                                             {language, []string{write(t, folder, "a.jsonl", []byte("[1]"))}},
		`line 2: position 1: id 100: the model knows 0 to 99`:                                     {language, []string{write(t, folder, "b.jsonl", []byte("[1]\n[5, 100]"))}},
		`line 1: position 0: id -1: the model knows 0 to 99; leave padding out`:                   {ids, []string{write(t, folder, "k.jsonl", []byte("[-1]"))}},
		`sample 1: input "ids", INT64 [b, t], row 0, position 2: id 100: the model knows 0 to 99`: {ids, []string{write(t, folder, "l/ids.npy", idsFile(2, 3, 5, 6, 7, 5, 6, 100))}},
		`sample 0: input "ids", INT64 [b, t], row 0, position 1: id -100: the model knows 0 to 99; leave padding out, or give it another id and 0 in the attention mask`: {ids, []string{write(t, folder, "m/ids.npy", idsFile(2, 3, 5, -100, -100, 5, 6, 7))}},
		`line 1: not a list of token ids`:                                {language, []string{write(t, folder, "c.jsonl", []byte("text"))}},
		`no input of token ids`:                                          {plain, []string{write(t, folder, "d.jsonl", []byte("[1]"))}},
		`no values for input "z", FLOAT [n, 3]`:                          {plain, []string{x}},
		`they have "foo", "bar"`:                                         {single, []string{npz(t, folder, "foo", "bar")}},
		`unnamed.pb: input "x", FLOAT [n, 2]: the array has shape [1 3]`: {single, []string{write(t, folder, "unnamed.pb", tensorProto(t, "", dtype.Float32, 1, 3))}},
		`elements of type INT64`:                                         {plain, []string{x, write(t, folder, "e/z.npy", npyFile("<i8", false, 3, 3))}},
		`shape [3 4]`:                                                    {plain, []string{x, write(t, folder, "f/z.npy", npyFile("<f4", false, 3, 4))}},
		`3 samples of input "x", but 2 of "z"`:                           {plain, []string{x, write(t, folder, "g/z.npy", npyFile("<f4", false, 2, 3))}},
		`sample 0: input "ids", INT64 [b, t] has no elements; leave the sample out`:                        {ids, []string{write(t, folder, "i/ids.npy", npyFile("<i8", false, 3, 0))}},
		`sample 0: input "x", FLOAT [n, w] has no elements`:                                                {withInputs(t, input("x", dtype.Float32, "n", "w")), []string{write(t, folder, "j/x.npy", npyFile("<f4", false, 3, 0))}},
		`[3 2], and 3 rows are not a multiple of 2, the batch that the model takes: leave 1 out, or add 1`: {withInputs(t, input("x", dtype.Float32, 2, 2)), []string{x}},
		`[3 2], and 3 rows are not a multiple of 8, the batch that the model takes: add 5`:                 {withInputs(t, input("x", dtype.Float32, 8, 2)), []string{x}},
		`the folder has no`:         {plain, []string{empty}},
		`missing.npy: there is no`:  {plain, []string{x, "missing.npy"}},
		`not a TensorProto`:         {plain, []string{x, write(t, folder, "bad.pb", []byte("\xff"))}},
		`4 bytes for FLOAT [1000`:   {plain, []string{x, write(t, folder, "short.pb", []byte("\x08\xe8\x07\x08\xe8\x07\x10\x01\x4a\x04abcd"))}},
		`product of the dimensions`: {plain, []string{x, write(t, folder, "huge.pb", []byte("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x10\x01\x25\x00\x00\x00\x00"))}},
		`text must be token ids`:    {plain, []string{write(t, folder, "text.txt", nil)}},
		`fewer than its 9 elements`: {plain, []string{x, write(t, folder, "h/z.npy", bytes.TrimSuffix(npyFile("<f4", false, 3, 3)[:84], nil))}},
	} {
		s, err := Open(test.m, test.files, 0)
		if err == nil {
			for _, e := range s.All() {
				err = e
			}
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one that says %s", err, says)
		}
	}
}

// Errors name the file of a sample, if there are several.
func TestNames(t *testing.T) {
	m := withInputs(t, input("x", dtype.Float32, "n", 2))
	folder := t.TempDir()
	write(t, folder, "x_0.npy", floatsFile(t, "2,2", 1, 2, 3, 4))
	write(t, folder, "x_1.npy", floatsFile(t, "1,2", 5, 6))
	inner := filepath.Join(folder, "y")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	last := write(t, inner, "x.npy", floatsFile(t, "2,2", 7, 8, 9, float32(math.Inf(-1))))
	s, err := Open(m, []string{folder}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for number, file := range []string{last, last, "x_0.npy", "x_0.npy", "x_1.npy"} {
		if got := s.Name(number); !strings.HasPrefix(got, fmt.Sprintf("sample %d (", number)) || !strings.HasSuffix(got, file+")") {
			t.Errorf("%d: %s", number, got)
		}
	}
	x := execute.Made(dtype.Float32, []int64{1, 2}, []float32{0, float32(math.Inf(-1))})
	x.Name = "x"
	if err := s.NotFinite(1, []*execute.Tensor{x}); !errors.Is(err, ErrOutputs) || !strings.Contains(err.Error(), last) || !strings.Contains(err.Error(), `its input "x" has -infinity`) {
		t.Error(err)
	}
	if s, err = Open(m, []string{last}, 0); err != nil || s.Name(1) != "sample 1" {
		t.Error(err)
	}
}

// Infinity is a mistake; minus infinity may be in masks.
func TestInfinity(t *testing.T) {
	for _, c := range []struct {
		name string
		x    float64
		want string
	}{
		{"x", math.Inf(1), `sample 1: input "x" has infinity; leave the sample out`},
		{"attention_mask", math.Inf(1), "has infinity"},
		{"x", math.Inf(-1), ""},
	} {
		m := withInputs(t, input(c.name, dtype.Float32, "n", 2))
		s, err := Open(m, []string{write(t, t.TempDir(), "a.npy", floatsFile(t, "2,2", 1, 2, 3, float32(c.x)))}, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, err := range s.All() {
			if err != nil {
				got = err.Error()
			}
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %g: %s", c.name, c.x, got)
		}
	}
}
