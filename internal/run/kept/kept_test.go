package kept_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/kept"
)

func TestKept(t *testing.T) {
	folder := t.TempDir()
	want := []*execute.Tensor{
		{Name: "x", DType: dtype.Float32, Dims: []int64{1, 2}, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{Name: "scalar", DType: dtype.Int64, Data: []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		{Name: "empty", DType: dtype.Bool, Dims: []int64{0}},
	}
	if err := kept.Write(folder, 3, want); err != nil {
		t.Fatal(err)
	}
	got, err := kept.Read(folder, 3)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := kept.Read(folder, 4); err == nil {
		t.Error("a sample that was not kept is read")
	}
	path := filepath.Join(folder, "3")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range content {
		if err := os.WriteFile(path, content[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Read(folder, 3); err == nil {
			t.Errorf("%d of %d bytes are read without an error", n, len(content))
		}
	}
	if err := kept.Write(folder, 0, []*execute.Tensor{{Name: "list", List: want}}); err == nil {
		t.Error("a sequence is kept")
	}
}
