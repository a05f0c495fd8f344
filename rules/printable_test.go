package rules

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"onnxquant/calib"
	"onnxquant/spec"
)

// Documents have no rune that controls a terminal, and the same names as before.
func TestDocumentsArePrintable(t *testing.T) {
	const name, escaped = "a\u009b\u202eé", `a\u009b\u202eé`
	p, err := NewPrecision(PrecisionEntry{Pattern: name, Override: spec.Candidate{Format: spec.Float}.Override()})
	if err != nil {
		t.Fatal(err)
	}
	precision, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParsePrecision(precision); err != nil || back.Entries()[0].Pattern != name {
		t.Errorf("precision_info: %v, %v", back, err)
	}
	r := Ranges{Method: "minmax", Tensors: map[string]calib.Range{name: {Min: -1, Max: 1}}}
	var ranges bytes.Buffer
	if err := r.Write(&ranges); err != nil {
		t.Fatal(err)
	}
	if back, err := ParseRanges(ranges.Bytes()); err != nil || back.Tensors[name] != r.Tensors[name] {
		t.Errorf("ranges: %v, %v", back, err)
	}
	for _, text := range []string{string(precision), ranges.String()} {
		if !strings.Contains(text, escaped) || strings.Contains(text, name) {
			t.Errorf("%q", text)
		}
	}
}
