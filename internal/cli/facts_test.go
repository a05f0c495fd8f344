package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCounts(t *testing.T) {
	few := map[string]int{"b": 2, "a": 2, "c": 9}
	if diff := cmp.Diff([]string{"9 c", "2 a", "2 b"}, Counts(few)); diff != "" {
		t.Error(diff)
	}
	many := map[string]int{}
	for i := range 20 {
		many[string(rune('a'+i))] = 100 - i
	}
	got := Counts(many)
	if len(got) != 9 || got[8] != "1038 others" {
		t.Errorf("%q", got)
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		before, after int64
		want          string
	}{
		{1024, 1024, "1.0 KiB -> 1.0 KiB, the same size"},
		{100_000, 100_020, "98 KiB -> 98 KiB, the same size"},
		{1000, 1020, "1000 B -> 1020 B, 2.0 % larger"},
		{1000, 2000, "1000 B -> 2.0 KiB, 2.0 times larger"},
		{1000, 960, "1000 B -> 960 B, 4.0 % smaller"},
		{1000, 800, "1000 B -> 800 B, 1.2 times smaller"},
		{1000, 0, "1000 B -> 0 B"},
		{0, 0, "0 B -> 0 B"},
	} {
		if got := Sizes(c.before, c.after); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestListed(t *testing.T) {
	long := strings.Repeat("x", 2*MaxName)
	got := Listed([]string{"a\n", long})
	if want := `a\n, ` + Clip(long, MaxName); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Listed(strings.Split("a b c d e f g h i j k", " ")); got != "a, b, c, d, e, f, g, h, i, 2 others" {
		t.Errorf("%q", got)
	}
}

// A reason ends after a word.
func TestSentence(t *testing.T) {
	words := strings.Repeat("word ", MaxReason)
	for s, want := range map[string]string{
		"short":             "short",
		"a\n":               `a\n`,
		words[:MaxReason-1]: words[:MaxReason-1],
		words:               words[:MaxReason-6] + " …",
		strings.Repeat("x", 2*MaxReason) + " end": strings.Repeat("x", MaxReason-2) + " …",
	} {
		if got := Sentence(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
