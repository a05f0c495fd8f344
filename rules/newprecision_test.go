package rules_test

import (
	"encoding/json"
	"testing"

	"onnxquant/rules"
	"onnxquant/spec"
)

func TestNewPrecision(t *testing.T) {
	eight, format := 8, spec.NF4
	p, err := rules.NewPrecision(
		rules.PrecisionEntry{Pattern: rules.PatternOf(`w[0]*?\<é`), Override: spec.Override{Bits: &eight}},
		rules.PrecisionEntry{Pattern: "x*", Override: spec.Override{Format: &format}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{`w[0]*?\<é`: true, "w0": false, `w[0]ab\<é`: false, "xy": true} {
		if _, ok := p.For(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rules.ParsePrecision(raw)
	if err != nil || len(again.Entries()) != 2 || *again.Entries()[0].Override.Bits != 8 {
		t.Errorf("%s: %v", raw, err)
	}
	five := 5
	for _, e := range []rules.PrecisionEntry{{Pattern: "a\xff"}, {}, {Pattern: "a", Override: spec.Override{Bits: &five}}, {Pattern: "a", Override: spec.Override{Bits: &eight, Format: &format}}} {
		if _, err := rules.NewPrecision(e); err == nil {
			t.Errorf("%+v: no error", e)
		}
	}
}
