package cli

import "testing"

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		".x": `\&.x`, "'x": `\&'x`, `a\b`: `a\eb`, "--bits": `\-\-bits`,
	} {
		if got := roff(text); got != want {
			t.Errorf("roff(%q) = %q, want %q", text, got, want)
		}
	}
}
