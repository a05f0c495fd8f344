package house

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/internals.md names each package below onnxq and internal.
func TestInternals(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range imports(t) {
		if !strings.HasPrefix(name, "onnxq") && !strings.HasPrefix(name, "internal/") {
			continue
		}
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "`").Match(text) {
			t.Errorf("docs/internals.md does not name %s", name)
		}
	}
}
