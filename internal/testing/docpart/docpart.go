// Package docpart keeps the parts of documents that are made from the code. A test checks a
// part; run with -update, it writes the part.
package docpart

import (
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
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

// width is that of the lines that Wrap makes.
const width = 105

// Wrap breaks a paragraph into lines. The first one begins with head, the others are indented as
// far.
func Wrap(head, text string) string {
	var b strings.Builder
	line, indent := head, strings.Repeat(" ", len(head))
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line+" "+word) <= width:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = indent + word
		}
	}
	return b.String() + line + "\n"
}
