package house

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Where bytes must match on every processor no multiplication may be fused with an
// addition. The compiler does so for arm64 wherever the language lets it, also where
// a function is inlined, and there its code is searched.

// coders are the packages that find codes and scales, or decode them.
var coders = []string{
	"./int4", "./nvfp4", "./formats/...", "./calib", "./quantutil", "./internal/kernels", "./internal/blocks",
	"./internal/lazy", "./internal/linalg", "./internal/convolve", "./internal/packing", "./internal/quantize", "./onnxq/restyle", "./onnxq/ggufmodel",
}

// exact are functions, by the beginning of their names, whose products have no
// rounding to lose.
var exact = map[string]string{
	"internal/kernels.(*ErrorSums).": "squares of float32 in float64",
	"internal/kernels.(*piece).":     "squares of float32 in float64",
	"internal/kernels.NewNearest":    "multiples of powers of two",
	"int4.(*leastError).":            "multiples of powers of two",
	"calib.squaredError":             "halves",
}

func TestNothingIsFused(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for arm64")
	}
	list := goTool(t, append([]string{"list", "-export", "-f", "{{.Export}}"}, coders...)...)
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	archives, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for archive := range strings.FieldsSeq(string(archives)) {
		code, err := exec.Command("go", "tool", "objdump", archive).Output()
		if err != nil {
			t.Fatal(err)
		}
		function := ""
		for lines := bufio.NewScanner(bytes.NewReader(code)); lines.Scan(); {
			words := strings.Fields(lines.Text())
			switch {
			case len(words) > 1 && words[0] == "TEXT":
				function = strings.TrimPrefix(words[1], module())
			case len(words) > 3 && (strings.HasPrefix(words[3], "FMADD") || strings.HasPrefix(words[3], "FMSUB") ||
				strings.HasPrefix(words[3], "FNMADD") || strings.HasPrefix(words[3], "FNMSUB")):
				if name := exactName(function); name != "" {
					found[name] = true
				} else {
					t.Errorf("%s: a multiplication and an addition become one at %s", function, words[0])
				}
			}
		}
	}
	for name := range exact {
		if !found[name] {
			t.Errorf("nothing is fused in %s: the test sees less than it should", name)
		}
	}
}

func exactName(function string) string {
	for name := range exact {
		if strings.HasPrefix(function, name) {
			return name
		}
	}
	return ""
}
