package samples

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// floatsFile makes an .npy file of float32.
func floatsFile(t *testing.T, shape string, x ...float32) []byte {
	t.Helper()
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }\n", shape)
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	b, err := binary.Append(append(b, header...), binary.LittleEndian, x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWarnings(t *testing.T) {
	float := func(name string, dims ...any) *onnxpb.ValueInfoProto { return input(name, dtype.Float32, dims...) }
	model := func(inputs ...*onnxpb.ValueInfoProto) *modelfile.Model { return withInputs(t, inputs...) }
	rows, image := model(float("x", "n", 2)), model(float("x", "n", 2, "h", 3))
	gray := model(float("x", "n", 1, 2, 3))
	two := model(float("x", "n", 2), float("attention_mask", "n", 2), float("z", "n", 2))
	differ := floatsFile(t, "2,2", 1, 2, 3, 4)
	same := floatsFile(t, "2,2", 1, 2, 1, 2)
	ids := model(input("ids", dtype.Int64, "b", "t"))
	for _, c := range []struct {
		name  string
		m     *modelfile.Model
		files map[string][]byte
		want  []string // what each warning says
	}{
		{"samples that differ", rows, map[string][]byte{"x.npy": differ}, nil},
		{"one sample", rows, map[string][]byte{"x.npy": floatsFile(t, "1,2", 1, 1)}, nil},
		{"the same samples", rows, map[string][]byte{"x.npy": same}, []string{"all 2 samples are the same"}},
		{"samples of several files", rows, map[string][]byte{"x_0.npy": floatsFile(t, "1,2", 1, 2), "x_1.npy": floatsFile(t, "1,2", 1, 2)}, []string{"all 2 samples are the same"}},
		{"the same ids", ids, map[string][]byte{"ids.npy": idsFile(2, 3, 5, 6, 7, 5, 6, 7)}, []string{"all 2 samples are the same"}},
		{"minus infinity", rows, map[string][]byte{"x.npy": floatsFile(t, "2,2", 1, 2, 3, float32(math.Inf(-1)))}, []string{`input "x" has -infinity in 1 sample: that is for masks`}},
		{"ids", ids, map[string][]byte{"ids.npy": idsFile(2, 3, 5, 6, 7, 5, 6, 8)}, nil},
		{"a channel", rows, map[string][]byte{"x.npy": floatsFile(t, "3,2", 1, 7, 2, 7, 3, 7)}, []string{`input "x": 1 of its 2 channels (axis 1) is the same in all samples, such as number 1, which is 7`}},
		{"a channel of images", image, map[string][]byte{"x.npy": floatsFile(t, "2,2,1,3", 0, 0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 6)}, []string{`1 of its 2 channels (axis 1) is the same in all samples, such as number 0, which is 0`}},
		{"one element of a channel varies", image, map[string][]byte{"x.npy": floatsFile(t, "2,2,1,3", 0, 0, 0, 1, 2, 3, 0, 0, 1, 4, 5, 6)}, nil},
		{"the border of gray images", gray, map[string][]byte{"x.npy": floatsFile(t, "2,1,2,3", 0, 0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 6)}, nil},
		{"one of two inputs", two, map[string][]byte{"x.npy": differ, "z.npy": same, "attention_mask.npy": same}, []string{`input "z": it is the same in all samples`}},
		{"one for all", two, map[string][]byte{"x.npy": differ, "z.npy": floatsFile(t, "1,2", 1, 1), "attention_mask.npy": same}, nil},
		{"an array of another name", rows, map[string][]byte{"data.npy": differ}, []string{`data.npy: array "data" is taken for input "x"`}},
		{"arrays of another name", rows, map[string][]byte{"a_0.npy": differ, "a_1.npy": differ}, []string{`a_0.npy: array "a_0" and 1 more are taken for input "x"`}},
		{"in turn", two, map[string][]byte{"a.npy": differ, "b.npy": differ, "c.npy": differ}, []string{`array "a" is taken for input "x"`, `array "b" is taken for input "attention_mask"`, `array "c" is taken for input "z"`}},
		{"an array without a name", rows, map[string][]byte{"data.pb": bytes.Clone(tensorProto(t, "", dtype.Float32, 1, 2))}, []string{`data.pb: the array is taken for input "x"`}},
	} {
		folder := t.TempDir()
		for name, content := range c.files {
			write(t, folder, name, content)
		}
		s, err := Open(c.m, []string{folder}, 0)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := s.Warnings()
		if err != nil || !slices.EqualFunc(got, c.want, strings.Contains) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
