package rules

import (
	"strings"
	"testing"
)

func TestMatchName(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"w", "w", true},
		{"w", "w2", false},
		{"w2", "w", false},
		{"", "", true},
		{"", "w", false},
		{"*", "", true},
		{"*", "a/b.c", true},
		{"**", "a/b.c", true},
		{"lm_head*", "lm_head/MatMul/weight", true},
		{"lm_head*", "model.lm_head", false},
		{"*experts*", "layers.0/experts.3/up", true},
		{"*.weight", "layers.0.weight", true},
		{"*.weight", "layers.0.weight_2", false},
		{"layers.*.up", "layers.0.mlp.up", true},
		{"a*b*c", "aXbXbXc", true},
		{"a*b*c", "aXbXbX", false},
		{"layers.?.up", "layers.7.up", true},
		{"layers.?.up", "layers.17.up", false},
		{"?", "/", true},
		{"?", "é", true},
		{"*é", "café", true},
		{"w[0]", "w[0]", true},
		{"w[0]", "w0", true},
		{"w[0]", "w1", false},
		{`w\[0]`, "w[0]", true},
		{`w\[0]`, "w0", false},
		{"layers.[0-3].up", "layers.2.up", true},
		{"layers.[0-3].up", "layers.4.up", false},
		{"layers.[!0-3].up", "layers.4.up", true},
		{"layers.[^0-3].up", "layers.2.up", false},
		{"[]x]", "]", true},
		{"[!]]", "]", false},
		{"[a-]", "-", true},
		{`[\]a]`, "]", true},
		{"[à-ü]", "é", true},
		{"w[0", "w[0", true},
		{"w[0*", "w[0.bias", true},
		{"w[0*", "w0.bias", false},
		{`w\`, `w\`, true},
		{`*\`, `w\`, true},
		{`\*`, "*", true},
		{`\*`, "w", false},
		{"*", "\xff\xfe", true},
		{"\xff*", "\xfe", false},
	} {
		if got := MatchName(c.pattern, c.name); got != c.want {
			t.Errorf("matchName(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

// A pattern with many stars does not take exponential time.
func TestMatchNameManyStars(t *testing.T) {
	if MatchName(strings.Repeat("a*", 1000)+"b", strings.Repeat("a", 5000)) {
		t.Error("matched a name without a b")
	}
}

func FuzzMatchName(f *testing.F) {
	f.Add("a*[b-c]?", "axbz")
	f.Add(`\[`, "[")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if !MatchName(name, name) {
			t.Errorf("%q does not match itself", name)
		}
		if !MatchName("*", name) || !MatchName(name+"*", name) && !isGlob(name) {
			t.Errorf("a trailing star does not match %q", name)
		}
		if got := MatchName(pattern, name); !isGlob(pattern) && got != (pattern == name) {
			t.Errorf("matchName(%q, %q) = %v", pattern, name, got)
		}
	})
}
