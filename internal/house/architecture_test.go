package house

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/docpart"
)

// The picture in docs/architecture.md shows the groups and packages of imports.txt.
func TestArchitecture(t *testing.T) {
	all, imports := groups(t)
	all = slices.DeleteFunc(all, func(g group) bool { return g.name == "tests" })
	docpart.Check(t, root+"/docs/architecture.md",
		"<!-- written by make architecture -->\n```mermaid\n", diagram(all, imports), "```\n<!-- end of architecture -->\n")
}

// diagram draws a box for each group, the last one first, with arrows between its packages,
// and arrows between groups. An arrow leads to what is imported, unless other arrows lead
// there too.
func diagram(all []group, imports map[string][]string) string {
	var b strings.Builder
	fmt.Fprintln(&b, "flowchart TD")
	groupOf := map[string]string{}
	for _, g := range all {
		for _, name := range g.packages {
			groupOf[name] = g.name
		}
	}
	between := map[string][]string{}
	for _, g := range slices.Backward(all) {
		fmt.Fprintf(&b, "  subgraph %s[%q]\n", node(g.name), g.name)
		within := map[string][]string{}
		for _, name := range slices.Backward(g.packages) {
			fmt.Fprintf(&b, "    %s[%s]\n", node(name), name)
			for _, i := range imports[name] {
				switch to := groupOf[i]; {
				case to == g.name:
					within[name] = append(within[name], i)
				case !slices.Contains(between[g.name], to):
					between[g.name] = append(between[g.name], to)
				}
			}
		}
		for _, name := range slices.Backward(g.packages) {
			arrows(&b, "    ", within, name)
		}
		fmt.Fprintln(&b, "  end")
	}
	for _, g := range slices.Backward(all) {
		arrows(&b, "  ", between, g.name)
	}
	return b.String()
}

// arrows draws those from a group or package.
func arrows(b *strings.Builder, indent string, imports map[string][]string, from string) {
	for _, to := range direct(imports, from) {
		fmt.Fprintf(b, "%s%s --> %s\n", indent, node(from), node(to))
	}
}

// node is a name that means nothing else to Mermaid.
func node(name string) string {
	return "p_" + strings.NewReplacer("/", "_", "-", "_", " ", "_").Replace(name)
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
