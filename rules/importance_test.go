package rules_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/gguf"
	"onnxquant/rules"
)

// An importance matrix has the same values in a GGUF file and in the older format.
func TestLoadImportance(t *testing.T) {
	columns := make([]float32, 3*256)
	for i := range columns {
		columns[i] = float32(i%97) + 0.5
	}
	for name, path := range map[string]string{
		"GGUF":             ggufImportance(t, "w", columns, 3, 4),
		"old":              oldImportance(t, "w", columns, 4),
		"old, of one sum":  oldImportance(t, "w", columns, 1),
		"GGUF, of one sum": ggufImportance(t, "w", columns, 1, 1),
	} {
		im, err := rules.LoadImportance(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(im.Columns) != 1 || !slices.Equal(im.Columns["w"], columns) || im.Source != path {
			t.Errorf("%s: other values", name)
		}
	}
}

// A file that is too large for an importance matrix is not read.
func TestHugeImportance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	for want, start := range map[string][]int32{
		"a name of more than": {1, 1 << 30},
		"more than 67108864":  {1, 0, 1, 1 << 28},
	} {
		b, _ := binary.Append(nil, binary.LittleEndian, start)
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<30+100); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.LoadImportance(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %s", err, want)
		}
	}
}

// FuzzImportance reads bytes that may be an importance matrix.
func FuzzImportance(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 'w', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 128, 63})
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 127})
	f.Add([]byte{255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 31})
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	path := filepath.Join(f.TempDir(), "imatrix")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		im, err := rules.LoadImportance(path)
		if err != nil {
			return
		}
		for name, values := range im.Columns {
			for _, v := range values {
				if !(v >= 0) {
					t.Fatalf("%q has %v", name, v)
				}
			}
		}
	})
}

// ggufImportance writes the sums of some matrices, each of count inputs, to a GGUF file.
func ggufImportance(t *testing.T, name string, columns []float32, matrices int, count float32) string {
	sums := make([]float32, len(columns))
	for i, v := range columns {
		sums[i] = v * count
	}
	l, err := gguf.NewLayout([]gguf.KeyValue{{Key: "general.type", Value: "imatrix"}}, []gguf.Tensor{
		{Name: name + ".in_sum2", Type: gguf.F32, Shape: []int64{int64(matrices), int64(len(columns) / matrices)}},
		{Name: name + ".counts", Type: gguf.F32, Shape: []int64{int64(matrices), 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "imatrix.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.WriteHead(f); err != nil {
		t.Fatal(err)
	}
	for i, values := range [][]float32{sums, slices.Repeat([]float32{count}, matrices)} {
		b, _ := binary.Append(nil, binary.LittleEndian, values)
		if _, err := l.Content(f, i).WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// oldImportance writes the sums of some batches in the older format.
func oldImportance(t *testing.T, name string, columns []float32, batches int32) string {
	b, _ := binary.Append(nil, binary.LittleEndian, []int32{1, int32(len(name))})
	b = append(b, name...)
	b, _ = binary.Append(b, binary.LittleEndian, []int32{batches, int32(len(columns))})
	for _, v := range columns {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v*float32(batches)))
	}
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
