package inspect_test

import (
	"math"
	"path/filepath"
	"testing"

	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/diff"
	"onnxquant/onnxq/inspect"
	"onnxquant/testmodels"
)

// FuzzInspect looks at whatever is a model as inspect, diff and dequantize do: there
// is a plan, or a reason why not; a model does not differ from itself; and a weight
// that says it can be decoded can be, from anywhere on.
func FuzzInspect(f *testing.F) {
	data := make([]byte, 300)
	for _, model := range testmodels.Seeds() {
		f.Add(model, data)
	}
	f.Fuzz(func(t *testing.T, model, data []byte) {
		in := filepath.Join(t.TempDir(), "in.onnx")
		modeltest.WriteFuzzed(t, in, model, data)
		m, err := onnxq.Open(in)
		if err != nil {
			return
		}
		defer m.Close()
		if in := inspect.Model(m, onnxq.Options{Ops: []string{"all"}}); (in.Plan == nil) != (in.NoPlan != "") {
			t.Errorf("a plan: %v, and %q", in.Plan != nil, in.NoPlan)
		}
		d, err := diff.Models(t.Context(), m, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Equal {
			t.Errorf("the model differs from itself: %+v", d.Changes)
		}
		for _, w := range recognize.Weights(m.Graph()) {
			n := w.Elements()
			if w.Obstacle != "" || n == 0 || n > 1<<20 {
				continue
			}
			all, last := make([]float32, n), make([]float32, n-n/2)
			if err := w.Read(all, 0); err != nil {
				t.Fatalf("%v: %v", w, err)
			}
			if err := w.Read(last, n/2); err != nil {
				t.Fatalf("%v: %v", w, err)
			}
			for i, x := range last {
				if math.Float32bits(x) != math.Float32bits(all[n/2+int64(i)]) {
					t.Fatalf("%v: element %d is %v and %v", w, n/2+int64(i), all[n/2+int64(i)], x)
				}
			}
		}
	})
}
