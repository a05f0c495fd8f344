// Package docpart keeps the parts of documents that are made from the code. A test checks a
// part; run with -update, it writes the part.
package docpart

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the parts of documents that are made from the code")

// Check fails unless the document at path has the part between the lines begin and end.
func Check(t *testing.T, path, begin, part, end string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", path, begin, end)
	}
	want := before + begin + part + end + after
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date: go test -run %s -update", path, t.Name())
	}
}
