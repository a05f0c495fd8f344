package inspect

import (
	"fmt"
	"strings"
	"testing"

	"onnxquant/internal/target"
	"onnxquant/internal/testing/docpart"
)

// docs/targets.md has the table of hazards.
func TestHazardsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("| runtime | effect | what | check |\n|---|---|---|---|\n")
	for _, c := range checks {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", target.Of(c.runtime).Short, c.effect, c.text, c.name)
	}
	docpart.Check(t, "../../docs/targets.md", "<!-- from the table in onnxq/inspect/hazards.go -->\n", b.String(), "<!-- end of the table -->\n")
}
