package spec

import "testing"

func TestParseRange(t *testing.T) {
	for _, text := range []string{"max", "entropy", "moving-average", "percentile:40"} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%s: no error, %v", text, r)
		}
	}
	for text, want := range map[string]Range{
		"": {}, "minmax": {}, "mse": {Kind: MSE}, "percentile": {Percentile, 99.9}, "percentile:95": {Percentile, 95},
	} {
		r, err := ParseRange(text)
		if err != nil || r != want {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
		if again, err := ParseRange(r.String()); err != nil || again != r {
			t.Errorf("%v is read as %+v, %v", r, again, err)
		}
	}
}
