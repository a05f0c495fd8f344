package optypes

import (
	"testing"

	"onnxquant/formats/dtype"
)

func TestOf(t *testing.T) {
	for _, test := range []struct {
		domain, operator string
		version          int64
		since            int64 // 0: not known
	}{
		{"", "MatMul", 8, 1},
		{"ai.onnx", "MatMul", 12, 9},
		{"", "MatMul", 28, 13},
		{"", "LayerNormalization", 16, 0},
		{"com.microsoft", "MatMulNBits", 1, 1},
		{"com.microsoft", "MatMul", 1, 0},
		{"ai.onnx.ml", "Scaler", 3, 1},
	} {
		since := int64(0)
		if s := Of(test.domain, test.operator, test.version); s != nil {
			since = s.Since
		}
		if since != test.since {
			t.Errorf("%s.%s at version %d: since %d, want %d", test.domain, test.operator, test.version, since, test.since)
		}
	}
}

func TestSignature(t *testing.T) {
	resize := Of("", "Resize", 13)
	for i, want := range []Param{{Variable: "T1"}, {Variable: "T2"}, {Type: dtype.Float32}, {Type: Other}} {
		if p, ok := resize.Input(i); !ok || p != want {
			t.Errorf("Resize input %d: %+v, want %+v", i, p, want)
		}
	}
	if _, ok := resize.Input(4); ok {
		t.Error("Resize has an input 4")
	}
	if f := resize.Variables["T1"]; !f.Float16 || !f.BFloat16 || !f.Float32 || !f.Float64 {
		t.Errorf("Resize T1: %+v, want all floats", f)
	}
	if p, ok := Of("", "Concat", 13).Input(7); !ok || p.Variable != "T" || p.Mixed {
		t.Errorf("Concat input 7: %+v, want T", p)
	}
	if p, ok := Of("", "Loop", 16).Output(3); !ok || !p.Mixed {
		t.Errorf("Loop output 3: %+v, want a type of its own", p)
	}
}
