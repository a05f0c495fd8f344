package onnxq_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Each float tensor of each kind of model is read correctly, whole and in pieces.
func TestTensors(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		m := modeltest.Open(t, modeltest.Build(t, kind.Name))
		list, err := m.Tensors()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.DType == dtype.Float64 {
				continue
			}
			got, err := w.Floats()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(w.Name, "/") { // modeltest has only tensors of the main graph
				continue
			}
			_, raw := modeltest.Tensor(t, m, w.Name)
			want := make([]float32, w.Len())
			w.DType.Decode(want, raw)
			if !slices.EqualFunc(got, want, sameBits) {
				t.Errorf("%s: %s: other elements", kind.Name, w.Name)
			}
			if w.Len() < 3 {
				continue
			}
			if piece := make([]float32, 2); w.Read(piece, 1) != nil || !slices.EqualFunc(piece, want[1:3], sameBits) {
				t.Errorf("%s: %s: a piece has other elements", kind.Name, w.Name)
			}
		}
	}
}

func TestTensorErrors(t *testing.T) {
	m := modeltest.Open(t, modeltest.Build(t, "mlp"))
	if _, err := m.Tensor("w9"); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("%v", err)
	}
	w, err := m.Tensor("w0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n     int
		first int64
	}{{1, -1}, {1, w.Len()}, {2, w.Len() - 1}, {0, w.Len() + 1}, {1, 1 << 62}} {
		if w.Read(make([]float32, c.n), c.first) == nil {
			t.Errorf("%d elements from %d on: no error", c.n, c.first)
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
