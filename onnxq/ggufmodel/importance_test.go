package ggufmodel_test

import (
	"bytes"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/rules"
)

// An importance matrix reaches the encoding: one for all matrices of a weight, or one for
// each.
func TestImportance(t *testing.T) {
	const k, n, experts = 256, 6, 3
	model, x := reader("MatMul", dtype.Float32, experts, k, n)
	m := modeltest.Open(t, modeltest.Write(t, model))
	rows := transposed(x, experts, k, n)
	columns := make([]float32, experts*k)
	for i := range columns {
		columns[i] = float32(i%97) + 0.5
	}
	for _, given := range [][]float32{columns, columns[:k]} {
		var want []byte
		for e := range experts {
			own := given[e*k%len(given):][:k]
			b := make([]byte, n*ggml.Q4_K.Bytes)
			if err := ggml.Q4_K.Quantize(b, rows[e*n*k:(e+1)*n*k], k, own, 1); err != nil {
				t.Fatal(err)
			}
			want = append(want, b...)
		}
		f := asGGUF(t, m, ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: "Q4_K"}}, Importance: importanceOf("w", given), Memory: 1})
		got := make([]byte, len(want))
		if err := buffer.ReadFull(f.Content(f.Tensor("w")), got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d values: other bytes", len(given))
		}
	}
	for want, im := range map[string]*rules.Importance{
		"none of its 1 names is the name of a quantized weight": importanceOf("other", columns[:k]),
		`"w" has 9 values, but its rows have 256 elements`:      importanceOf("w", columns[:9]),
	} {
		if _, err := ggufmodel.NewPlan(m, ggufmodel.Options{Importance: im}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %s", err, want)
		}
	}
}

func importanceOf(name string, columns []float32) *rules.Importance {
	return &rules.Importance{Source: "imatrix", Columns: map[string][]float32{name: columns}}
}
