// Package house tests the module as a whole: what its packages import, what it is built of,
// and what its documents say about the code.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../../.." // from here

// module is the module's path and a slash, which is in front of import paths.
var module = sync.OnceValue(func() string {
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		panic(err)
	}
	return strings.Fields(string(mod))[1] + "/"
})

// walk calls f for the files and folders that may belong to the module, with their paths from
// the root. Folders with a go.mod are modules of their own.
func walk(t *testing.T, f func(path string, d fs.DirEntry) error) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." {
			_, err := os.Stat(filepath.Join(root, path, "go.mod"))
			if strings.ContainsAny(d.Name()[:1], "._") || path == "build" || path == "dist" || err == nil {
				return fs.SkipDir
			}
		}
		return f(path, d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports returns what each package of the module imports of the module, on any system and with
// any build tags. Tests do not count.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	packages := map[string][]string{}
	walk(t, func(name string, d fs.DirEntry) error {
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		found := packages[path.Dir(name)]
		for _, spec := range file.Imports {
			full, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if ours, ok := strings.CutPrefix(full, module()); ok && !slices.Contains(found, ours) {
				found = append(found, ours)
			}
		}
		slices.Sort(found)
		packages[path.Dir(name)] = found
		return nil
	})
	return packages
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath string
	Doc        string // its first sentence
	Deps       []string
	CgoFiles   []string
	Standard   bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := goTool(t, append([]string{"list", "-json=ImportPath,Doc,Deps,CgoFiles,Standard"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // otherwise files that need cgo are left out
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// goTool returns the go command, to be run at the root. It reads every folder that may hold Go
// files: go test takes a cached result while the files that a test looked at are the same, and
// does not see what its child processes look at.
func goTool(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	walk(t, func(string, fs.DirEntry) error { return nil })
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	return cmd
}
