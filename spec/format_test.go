package spec

import (
	"fmt"
	"strings"
	"testing"

	"onnxquant/formats/ggml"
)

func TestFormats(t *testing.T) {
	for _, want := range Formats() {
		f, err := ParseFormat(string(want))
		if err != nil || f != want {
			t.Errorf("ParseFormat(%q) = %q, %v", want, f, err)
		}
		bits := map[byte]int{'2': 2, '4': 4, '8': 8}[f[len(f)-1]] // most names end with the bits …
		signed := strings.HasPrefix(string(f), "int")
		switch f {
		case FP8E4M3, FP8E5M2, MXFP8E5M2: // … except for these
			bits = 8
		}
		if e := f.Encoding(); e != nil {
			for bits = 2; bits < e.Form.Bits; bits *= 2 {
			}
			signed = e.Form.Signed
		}
		if f.Bits() != bits {
			t.Errorf("%s has %d bits", f, f.Bits())
		}
		if f.Signed() != signed {
			t.Errorf("%s signed: %v", f, f.Signed())
		}
	}
	for _, name := range []string{"", "int3", "INT4", "int4 "} {
		if _, err := ParseFormat(name); err == nil {
			t.Errorf("ParseFormat(%q) knows it", name)
		}
	}
}

// Codes of a blockwise format are stored in the smallest type that has enough bits.
func TestCodesOf(t *testing.T) {
	for _, f := range BlockwiseFormats() {
		e, _ := ggml.Lookup(string(f.Format))
		if bits := int(f.Codes.Bits()); bits < e.Form.Bits || bits/2 >= e.Form.Bits && bits > 2 {
			t.Errorf("%s: codes of %d bits in %d", e, e.Form.Bits, bits)
		}
	}
}

// A misspelt format suggests formats with the same beginning, similar bits or similar spelling.
func TestSimilar(t *testing.T) {
	for name, want := range map[string]string{
		"int5": "int4 int8 q5_k", "INT3": "int2 int4 q3_k", "uint6": "uint4 uint8 q6_k", "int7": "int4 int8",
		"int1": "int2", "int16": "int8", "int44": "int4", "uint44": "uint4", "int": "int2 int4 int8", "fp6": "fp4 fp8-e4m3", "mxfp6": "mxfp4 mxfp8",
		"q5": "q5_0 q5_1 q5_k", "q8_k": "q8_0", "q4_k_m": "q4_k", "nvfp5": "nvfp4", "w4a16": "", "": "",
		"int99999999999999999999": "",
	} {
		if got := strings.Trim(fmt.Sprint(Similar(name)), "[]"); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
