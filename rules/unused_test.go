package rules

import (
	"slices"
	"testing"
)

func TestUnusedOf(t *testing.T) {
	names := []string{"a", "b[0]", "layers.0.w", "layers.1.w", `c\`}
	for _, c := range []struct {
		patterns []string
		want     []int
	}{
		{nil, nil},
		{[]string{"*"}, nil},
		{[]string{"a", "b", "layers.0.w"}, []int{1}},
		{[]string{"layers.*.w", "layers.2.*"}, []int{1}},
		{[]string{"b[0]", `b\[0]`, `a\[0]`}, []int{2}}, // a name without and with a backslash
		{[]string{"x", "a", "y"}, []int{0, 2}},
	} {
		if got := unusedOf(c.patterns, names); !slices.Equal(got, c.want) {
			t.Errorf("%q: unused %v, want %v", c.patterns, got, c.want)
		}
	}
}
