package house

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the picture in docs/architecture.md")

const (
	architecture = root + "/docs/architecture.md"
	begin        = "<!-- written by make architecture -->\n```mermaid\n"
	end          = "```\n<!-- end of architecture -->\n"
)

// The picture in docs/architecture.md shows the packages as they are.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/architecture.md has no place for the picture")
	}
	want := before + begin + diagram(product(imports(t))) + end + after
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(architecture, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the picture in docs/architecture.md is out of date: run make architecture")
	}
}

// product leaves out what serves tests alone.
func product(packages map[string][]string) map[string][]string {
	maps.DeleteFunc(packages, func(name string, _ []string) bool {
		folder, _, _ := strings.Cut(name, "/")
		return folder == "test" || folder == "testmodels" || name == "internal/golden"
	})
	return packages
}

// diagram draws an arrow from each package to those that it imports, unless another arrow leads
// there by way of a third one. A box is a folder.
func diagram(packages map[string][]string) string {
	var b strings.Builder
	fmt.Fprintln(&b, "flowchart TD")
	folders := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		folder, _, _ := strings.Cut(name, "/")
		folders[folder] = append(folders[folder], name)
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		names := folders[folder]
		alone := slices.Equal(names, []string{folder})
		if !alone {
			fmt.Fprintf(&b, "  subgraph %s\n", folder)
		}
		for _, name := range names {
			fmt.Fprintf(&b, "    %s[%s]\n", node(name), strings.TrimPrefix(name, folder+"/"))
		}
		if !alone {
			fmt.Fprintln(&b, "  end")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		for _, to := range direct(packages, name) {
			fmt.Fprintf(&b, "  %s --> %s\n", node(name), node(to))
		}
	}
	return b.String()
}

// node is a name that means nothing else to Mermaid.
func node(name string) string {
	return "p_" + strings.NewReplacer("/", "_", "-", "_").Replace(name)
}

// direct returns what a package imports and no other of its imports leads to.
func direct(packages map[string][]string, name string) []string {
	beyond := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		for _, i := range packages[name] {
			if !beyond[i] {
				beyond[i] = true
				visit(i)
			}
		}
	}
	for _, i := range packages[name] {
		visit(i)
	}
	return slices.DeleteFunc(slices.Clone(packages[name]), func(i string) bool { return beyond[i] })
}
