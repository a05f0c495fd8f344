package house

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// numbers are the packages that see slices and shapes, never a protobuf.
var numbers = []string{
	"./int4", "./nvfp4", "./mx", "./fp8", "./ggml", "./gguf", "./qlora", "./calib", "./quality", "./qat",
	"./quantutil", "./internal/kernels", "./internal/blocks",
}

// Each package imports of the module what imports.txt says, no more and no less.
func TestImports(t *testing.T) {
	text, err := os.ReadFile("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if name, may, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
			listed[name] = strings.Fields(may)
		}
	}
	packages := imports(t)
	for name, found := range packages {
		may, ok := listed[name]
		if !ok {
			t.Errorf("%s is not in imports.txt; it imports: %s", name, strings.Join(found, " "))
			continue
		}
		for _, i := range found {
			if !slices.Contains(may, i) {
				t.Errorf("%s imports %s, imports.txt does not allow it", name, i)
			}
		}
		for _, i := range may {
			if !slices.Contains(found, i) {
				t.Errorf("%s does not import %s any more: remove it from imports.txt", name, i)
			}
		}
	}
	for name := range listed {
		if _, ok := packages[name]; !ok {
			t.Errorf("there is no package %s: remove it from imports.txt", name)
		}
	}
}

func TestNumbersWithoutProtobuf(t *testing.T) {
	for _, p := range list(t, numbers...) {
		protobuf := func(path string) bool { return strings.HasPrefix(path, "google.golang.org/protobuf/") }
		if i := slices.IndexFunc(p.Deps, protobuf); i >= 0 {
			t.Errorf("%s depends on %s", p.ImportPath, p.Deps[i])
		}
	}
}

// The command is one static binary: nothing it is made of needs a C compiler.
func TestNoCgo(t *testing.T) {
	for _, p := range list(t, "-deps", "./...") {
		if !p.Standard && len(p.CgoFiles) > 0 {
			t.Errorf("%s needs cgo", p.ImportPath)
		}
	}
}
