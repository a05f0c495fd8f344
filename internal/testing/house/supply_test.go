package house

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// advisories are those that dependencies of ours, or theirs, have been under. make
// audit looks for others.
var advisories = []struct{ module, fixed, id string }{
	{"github.com/gogo/protobuf", "v1.3.2", "CVE-2021-3121"},
	{"golang.org/x/text", "v0.3.8", "CVE-2022-32149"},
	{"google.golang.org/protobuf", "v1.33.0", "CVE-2024-24786"},
}

type goModule struct{ Path, Version string }

// modules lists what the packages of this module are built of with a tag.
func modules(t *testing.T, tag string) []goModule {
	t.Helper()
	out, err := goTool(t, "list", "-tags", tag, "-deps", "-f", `{{with .Module}}{"Path":"{{.Path}}","Version":"{{.Version}}"}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goModule
	for line := range strings.Lines(string(out)) {
		var m goModule
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Version != "" && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

func TestAdvisories(t *testing.T) {
	for _, m := range modules(t, "onnxgo") {
		for _, a := range advisories {
			if m.Path == a.module && slices.Compare(numbersOf(t, m.Version), numbersOf(t, a.fixed)) < 0 {
				t.Errorf("%s %s: %s is fixed in %s", m.Path, m.Version, a.id, a.fixed)
			}
		}
	}
}

func numbersOf(t *testing.T, version string) []int {
	n := make([]int, 3)
	if _, err := fmt.Sscanf(version, "v%d.%d.%d", &n[0], &n[1], &n[2]); err != nil {
		t.Fatalf("version %s: %v", version, err)
	}
	return n
}

// Gorgonia's licence forbids direct profit: only who asks for onnx-go by its tag gets it.
func TestWithoutGorgonia(t *testing.T) {
	for _, args := range [][]string{{"./..."}, {"-tags", "onnxgo", "./cmd/onnxquant"}} {
		found := false
		for _, p := range list(t, append([]string{"-deps"}, args...)...) {
			found = found || strings.HasPrefix(p.ImportPath, "gorgonia.org/")
		}
		if found != (args[0] == "-tags") {
			t.Errorf("%v: gorgonia is found: %v", args, found)
		}
	}
}

// Every dependency is listed with a licence that is known.
func TestLicences(t *testing.T) {
	check := func(page string, wanted []string) {
		text, err := os.ReadFile(root + "/docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		rows := regexp.MustCompile(`(?m)^\| (\S+) \| (.+) \|$`).FindAllStringSubmatch(string(text), -1)
		for _, path := range wanted {
			if !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == path || strings.HasPrefix(row[1], path+"/") }) {
				t.Errorf("docs/%s does not list %s: make licenses", page, path)
			}
		}
		for _, row := range rows {
			if row[2] == "Unknown" {
				t.Errorf("the licence of %s is not known", row[1])
			}
		}
	}
	var own []string
	for _, m := range modules(t, "") {
		own = append(own, m.Path)
	}
	check("licenses.md", own)
	check("licenses-cloud.md", []string{"gocloud.dev", "github.com/aws/aws-sdk-go-v2", "cloud.google.com/go/storage", "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"})
}
