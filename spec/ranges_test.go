package spec

import "testing"

func TestParseRange(t *testing.T) {
	for _, text := range []string{"max", "entropy", "moving-average", "percentile:40"} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%s: no error, %v", text, r)
		}
	}
	for text, want := range map[string]Range{
		"": {}, "minmax": {Kind: MinMax}, "mse": {Kind: RangeMSE}, "percentile": {Percentile, 99.9}, "percentile:95": {Percentile, 95},
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

func TestDefaultRange(t *testing.T) {
	for _, c := range []struct {
		format Format
		zp     bool
		want   RangeKind
	}{{Int2, false, RangeMSE}, {Uint2, false, RangeMSE}, {Uint2, true, MinMax}, {Int2, true, MinMax}, {Int4, false, MinMax}, {"q2_k", false, MinMax}} {
		if got := (Range{}).Of(c.format, c.zp); got.Kind != c.want {
			t.Errorf("%s, zero points %v: %v, want %v", c.format, c.zp, got, Range{Kind: c.want})
		}
		if got := (Range{Kind: MinMax}).Of(c.format, c.zp); got.Kind != MinMax {
			t.Errorf("%s: minmax becomes %v", c.format, got)
		}
	}
}
