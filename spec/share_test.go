package spec

import "testing"

func TestShare(t *testing.T) {
	for text, want := range map[string]Share{"0/1": {0, 1}, "3/4": {3, 4}} {
		if got, err := ParseShare(text); got != want || err != nil || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "4/4", "-1/4", "0/0", "1/x", "1/2/3"} {
		if s, err := ParseShare(text); err == nil {
			t.Errorf("%s: %v", text, s)
		}
	}
}
