package house

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/docpart"
)

// The picture and the tables in docs/architecture.md show the groups and packages of imports.txt.
func TestArchitecture(t *testing.T) {
	all, imports := groups(t)
	all = slices.DeleteFunc(all, func(g group) bool { return g.name == "tests" })
	slices.Reverse(all)
	docs := map[string]string{}
	for _, p := range list(t, "./...") {
		docs[strings.TrimPrefix(p.ImportPath, module())] = p.Doc
	}
	docpart.Check(t, root+"/docs/architecture.md",
		"<!-- written by make architecture -->\n", "```mermaid\n"+diagram(all, imports)+"```\n"+tables(t, all, docs), "<!-- end of architecture -->\n")
}

// tables says what each package of each group does: the first sentence of its documentation,
// without its first two words, which say that this is a package.
func tables(t *testing.T, all []group, docs map[string]string) string {
	var b strings.Builder
	for _, g := range all {
		fmt.Fprintf(&b, "\n## %s\n\n| package | |\n|---|---|\n", strings.ToUpper(g.name[:1])+g.name[1:])
		for _, name := range slices.Backward(g.packages) {
			words := strings.SplitN(docs[name], " ", 3)
			if len(words) < 3 || !strings.HasSuffix(words[2], ".") && !strings.HasSuffix(words[2], ":") {
				t.Errorf("the documentation of %s does not begin with a sentence: %q", name, docs[name])
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, words[2][:len(words[2])-1])
		}
	}
	return b.String()
}

// diagram draws a box for each group, with arrows between its packages,
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
	for _, g := range all {
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
	for _, g := range all {
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
