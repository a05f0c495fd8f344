package sensitivity

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// Samples beyond the memory that they may take come back from files as they were.
func TestStore(t *testing.T) {
	tensor := func(name string, data ...byte) *execute.Tensor {
		return &execute.Tensor{Name: name, DType: dtype.Uint8, Dims: []int64{int64(len(data))}, Data: data}
	}
	for _, used := range []int64{0, inMemory} {
		s := store{parent: t.TempDir(), bytes: used}
		var list []*sample
		for i := range byte(3) {
			one, err := s.add([]*execute.Tensor{tensor("x", i), nil, tensor("s", 7)}, []*execute.Tensor{tensor("y", i, i)})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, one)
		}
		if (s.files == 3) != (used > 0) {
			t.Errorf("%d files", s.files)
		}
		for i, one := range list {
			inputs, want, err := one.load()
			if err != nil {
				t.Fatal(err)
			}
			x := byte(i)
			if d := cmp.Diff([][]*execute.Tensor{{tensor("x", x), tensor("s", 7)}, {tensor("y", x, x)}}, [][]*execute.Tensor{inputs, want}); d != "" {
				t.Error(d)
			}
		}
		s.close()
		if left, _ := os.ReadDir(s.parent); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}
