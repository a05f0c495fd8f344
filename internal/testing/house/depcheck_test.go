package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutProtobuf are the packages that see slices, shapes and names, never a model's structs.
var withoutProtobuf = []string{
	"./int4", "./nvfp4", "./formats/...", "./calib", "./qat", "./quality", "./quantutil",
	"./internal/kernels", "./internal/blocks", "./internal/shapes", "./internal/packing", "./internal/lazy", "./internal/quantize",
	"./internal/buffer", "./internal/knapsack", "./internal/msg", "./internal/nearest", "./internal/run/npy", "./internal/regularfile", "./internal/work",
	"./spec", "./rules", "./internal/target",
}

// group is a group of packages in imports.txt.
type group struct {
	name     string
	packages []string
}

// groups reads imports.txt: the groups, and what each package may import.
func groups(t *testing.T) (all []group, may map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	may = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			all = append(all, group{name: strings.TrimSpace(name)})
		} else if name, list, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
			g := &all[len(all)-1]
			g.packages = append(g.packages, name)
			may[name] = strings.Fields(list)
		}
	}
	return all, may
}

// Each package imports of the module what imports.txt says, no more and no less, and only
// packages that are listed before it.
func TestImports(t *testing.T) {
	all, listed := groups(t)
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
	before := map[string]bool{}
	for _, g := range all {
		for _, name := range g.packages {
			if _, ok := packages[name]; !ok {
				t.Errorf("there is no package %s: remove it from imports.txt", name)
			}
			for _, i := range listed[name] {
				if !before[i] {
					t.Errorf("%s imports %s, which imports.txt does not list before it", name, i)
				}
			}
			before[name] = true
		}
	}
}

func TestWithoutProtobuf(t *testing.T) {
	for _, p := range list(t, withoutProtobuf...) {
		protobuf := func(path string) bool { return strings.HasPrefix(path, "google.golang.org/protobuf/") }
		if i := slices.IndexFunc(p.Deps, protobuf); i >= 0 {
			t.Errorf("%s depends on %s", p.ImportPath, p.Deps[i])
		}
	}
}

// Nothing the module is made of needs a C compiler. With cgo, purego takes it; it does without.
func TestNoCgo(t *testing.T) {
	for _, p := range list(t, "-deps", "./...") {
		if !p.Standard && len(p.CgoFiles) > 0 && !strings.HasPrefix(p.ImportPath, purego) {
			t.Errorf("%s needs cgo", p.ImportPath)
		}
	}
}

const purego = "github.com/ebitengine/purego"

// The command is one static binary. A program with purego is linked dynamically.
func TestStatic(t *testing.T) {
	for _, p := range list(t, "./...") {
		dynamic := slices.Contains(p.Deps, purego)
		if may := strings.HasSuffix(p.ImportPath, "internal/run/execute/ort/capi") || strings.HasSuffix(p.ImportPath, "cmd/onnxquant-ort"); dynamic != may {
			t.Errorf("%s depends on purego: %v", p.ImportPath, dynamic)
		}
	}
}

// The module's own imports are a group apart, so files stay formatted where the module has another path.
func TestImportGroups(t *testing.T) {
	walk(t, func(name string, d fs.DirEntry) error {
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(text), "\nimport (\n")
		block, _, _ := strings.Cut(rest, "\n)\n")
		for group := range strings.SplitSeq(block, "\n\n") {
			own := strings.Count(group, `"`+module())
			if own > 0 && own < strings.Count(group, `"`)/2 {
				t.Errorf("%s: put the imports of this module into a group of their own", name)
			}
		}
		return nil
	})
}
