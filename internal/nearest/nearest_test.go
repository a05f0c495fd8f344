package nearest

import (
	"slices"
	"testing"
)

func TestName(t *testing.T) {
	names := []string{"format", "block", "layers.0.mlp.up.weight", "lm_head"}
	for _, c := range []struct {
		pattern, want string
		ok            bool
	}{
		{"fromat", "format", true},
		{"blocks", "block", true},
		{"lm_haed*", "lm_head", true},
		{"layers.*.mlp.op.weight", "layers.0.mlp.up.weight", true},
		{"nope*", "", false},
		{"xyz", "", false},
		{"lmhead", "lm_head", true},
		{"layers.0_mlp-upweight", "layers.0.mlp.up.weight", true},
		{"mlp.up", "layers.0.mlp.up.weight", true},
		{"layers.0.m", "layers.0.mlp.up.weight", true},
		{"lock", "block", true},
		{"_", "", false},
		{"", "", false},
	} {
		if got, ok := Name(c.pattern, names); got != c.want || ok != c.ok {
			t.Errorf("%q: %q, %v, want %q", c.pattern, got, ok, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	mixes := []string{"Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M"}
	many := []string{"layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.10"}
	for _, c := range []struct {
		pattern string
		names   []string
		want    []string
	}{
		{"Q4_K", mixes, []string{"Q4_K_S", "Q4_K_M"}},
		{"Q4KM", mixes, []string{"Q4_K_M"}},
		{"Q4_0", mixes, []string{"Q4_0"}},
		{"Q5_L_M", mixes, []string{"Q5_K_M"}},
		{"Q9", mixes, nil},
		{"layers.", many, []string{"layers.0"}},
	} {
		if got := Names(c.pattern, c.names); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.pattern, got, c.want)
		}
	}
}
