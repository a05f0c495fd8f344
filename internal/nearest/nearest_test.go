package nearest

import "testing"

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
