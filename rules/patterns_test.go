package rules

import (
	"fmt"
	"testing"

	"onnxquant/spec"
)

// In a list, and as a key of a precision_info, each pattern matches the same names as alone.
func TestPatterns(t *testing.T) {
	texts := []string{
		`a`, `b`, `a/b`, `a[0]`, `a0`, `a\[0\]`, `a\[0]`, `\a`, `a\`, `a\\`, `a*`, `a\*`, `a\*b*`, `a?`, `\é`, `é`, `a[`, `*`, `[!a]`, ``,
	}
	eight := 8
	for _, pattern := range texts {
		p := NewPatterns([]string{pattern})
		precision, _ := NewPrecision(PrecisionEntry{pattern, spec.Override{Bits: &eight}})
		for _, name := range texts {
			want := MatchName(pattern, name)
			if p.Match(name) != want {
				t.Errorf("%q in a list matches %q: %v", pattern, name, !want)
			}
			if unused, found := p.Unused([]string{"c", name}); found == (want || MatchName(pattern, "c")) || found && unused != pattern {
				t.Errorf("%q and the names c and %q: unused: %v, %q", pattern, name, found, unused)
			}
			if _, found := precision.For(name); found != want && pattern != "" {
				t.Errorf("key %q matches %q: %v", pattern, name, found)
			}
			if err := precision.Unused([]string{"c", name}); (err == nil) != (want || MatchName(pattern, "c")) && pattern != "" {
				t.Errorf("key %q and the names c and %q: %v", pattern, name, err)
			}
		}
	}
	var none *Patterns
	if none.Match("a") || !none.Empty() || !NewPatterns(nil).Empty() {
		t.Error("no patterns match something")
	}
}

// The last of several keys for a name wins, in any spelling.
func TestLastKey(t *testing.T) {
	spellings := []string{`a\[0\]`, `a[0]`, `\a\[0\]`, `*\[0\]`}
	for i := range spellings {
		var entries []PrecisionEntry
		for k := range spellings {
			bits := 1 << (k%3 + 1)
			entries = append(entries, PrecisionEntry{spellings[(i+k)%len(spellings)], spec.Override{Bits: &bits}})
		}
		p, err := NewPrecision(entries...)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := p.For("a[0]"); fmt.Sprint(*got.Bits) != fmt.Sprint(*entries[3].Override.Bits) {
			t.Errorf("%v: %d bits", entries, *got.Bits)
		}
	}
}
