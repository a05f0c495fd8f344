package onnxq

import (
	"strconv"
	"strings"
	"testing"
)

func TestFormats(t *testing.T) {
	for _, want := range Formats() {
		f, err := ParseFormat(string(want))
		if err != nil || f != want {
			t.Errorf("ParseFormat(%q) = %q, %v", want, f, err)
		}
		digits := strings.TrimLeft(string(f), "uintfloa")
		if bits, _ := strconv.Atoi(digits); f.Bits() != bits {
			t.Errorf("%s has %d bits", f, f.Bits())
		}
		if f.Signed() != !strings.HasPrefix(string(f), "u") {
			t.Errorf("%s signed: %v", f, f.Signed())
		}
	}
	for _, name := range []string{"", "int3", "INT4", "int4 "} {
		if _, err := ParseFormat(name); err == nil {
			t.Errorf("ParseFormat(%q) knows it", name)
		}
	}
}
