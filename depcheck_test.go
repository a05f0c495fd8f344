// Package onnxquant holds what is true of the module as a whole.
package onnxquant

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "onnxquant/"

// Number packages see slices and shapes, never a protobuf.
var formats = []string{"int4", "nvfp4", "formats/mx", "formats/fp8", "formats/ggml", "formats/gguf", "formats/qlora", "calib", "quality", "qat"}

// What they share lies below them.
var basics = []string{"formats/dtype", "formats/errstat", "internal/kernels"}

// mayImport lists, for each part of the module, the parts it may import. A
// part is a folder with all below it, and may import itself.
var mayImport = map[string][]string{
	"cmd":                  {"onnxq", "verify", "calib", "formats/gguf", "quality", "internal/nearest", "internal/npy"},
	"onnxq":                slices.Concat(formats, basics, []string{"internal/onnxpb", "internal/modelfile", "internal/opset", "internal/knapsack", "internal/nearest", "internal/regularfile"}),
	"quantutil":            {"formats/dtype", "internal/kernels"},
	"formats/dtype":        {"internal/kernels"},
	"formats/errstat":      {"internal/kernels"},
	"internal/blocks":      basics,
	"internal/modelfile":   {"formats/dtype", "internal/onnxpb", "internal/regularfile"},
	"internal/opset":       {"internal/onnxpb"},
	"internal/npy":         {"formats/dtype", "internal/regularfile"},
	"verify":               {"onnxq", "internal/execute", "internal/modelfile"},
	"internal/execute":     {"formats/dtype", "internal/modelfile", "internal/nearest", "internal/npy", "internal/onnxpb", "internal/regularfile"},
	"internal/knapsack":    {},
	"internal/nearest":     {},
	"internal/kernels":     {},
	"internal/regularfile": {},
	"internal/onnxpb":      {},
}

// tooling serves tests, measurements and generators, and may import anything.
var tooling = []string{"testmodels", "oracle", "bench", "internal/golden"}

func init() {
	for _, f := range formats {
		mayImport[f] = append([]string{"internal/blocks"}, basics...)
	}
	for _, f := range []string{"quality", "qat"} {
		mayImport[f] = append(mayImport[f], "calib")
	}
	mayImport["formats/gguf"] = append(mayImport["formats/gguf"], "internal/regularfile")
}

// part returns the part of the module that a package path belongs to, or "".
func part(path string) string {
	path, ours := strings.CutPrefix(path, module)
	for name := range mayImport {
		if ours && (path == name || strings.HasPrefix(path, name+"/")) {
			return name
		}
	}
	return ""
}

func isTooling(path string) bool {
	return slices.ContainsFunc(tooling, func(f string) bool {
		return path == module+f || strings.HasPrefix(path, module+f+"/")
	})
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	CgoFiles   []string
	Standard   bool
}

// list describes packages as go list does.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	lookAround(t)
	list := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,CgoFiles,Standard"}, args...)...)
	list.Env = append(os.Environ(), "CGO_ENABLED=1") // else files that need it are passed over
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// lookAround reads every folder that may hold Go files. go test takes a cached
// result while the files that a test looked at are the same, and does not see
// what its child processes look at.
func lookAround(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (path == "build" || len(path) > 1 && path[0] == '.') {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range list(t, "./...") {
		if p.ImportPath+"/" == module || isTooling(p.ImportPath) {
			continue
		}
		from := part(p.ImportPath)
		if from == "" {
			t.Errorf("%s is new: say in this test what it may import", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if to := part(i); strings.HasPrefix(i, module) && to != from && !slices.Contains(mayImport[from], to) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
		if !slices.Contains(formats, from) && !slices.Contains(basics, from) && from != "quantutil" {
			continue
		}
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
