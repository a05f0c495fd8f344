package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/internals.md names each file of onnxq once.
func TestInternals(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## The files of onnxq")
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]* \| ([a-z0-9 ]+) \|$`).FindAllStringSubmatch(table, -1) {
		listed = append(listed, strings.Fields(row[1])...)
	}
	slices.Sort(listed)
	var files []string
	paths, err := filepath.Glob(root + "/onnxq/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), ".go"); !strings.HasSuffix(name, "_test") {
			files = append(files, name)
		}
	}
	listed = slices.DeleteFunc(listed, func(s string) bool { return s == "files" })
	if !slices.Equal(files, listed) {
		t.Errorf("docs/internals.md lists %q, onnxq has %q", listed, files)
	}
}
