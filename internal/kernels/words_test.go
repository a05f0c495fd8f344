package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Each WORD of the assembly is the instruction that stands beside it.
func TestWords(t *testing.T) {
	assembler, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Skip("llvm-mc is not installed")
	}
	assembly, err := os.ReadFile("simd_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	var instructions, words []string
	for _, m := range regexp.MustCompile(`WORD \$0x([0-9a-f]{8}) // (.*)`).FindAllStringSubmatch(string(assembly), -1) {
		words, instructions = append(words, m[1]), append(instructions, m[2])
	}
	if len(words) == 0 || len(words) != bytes.Count(assembly, []byte("WORD")) {
		t.Fatalf("%d words have an instruction beside them", len(words))
	}
	cmd := exec.Command(assembler, "-triple=aarch64", "-show-encoding")
	cmd.Stdin = strings.NewReader(strings.Join(instructions, "\n"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	encodings := regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllStringSubmatch(string(out), -1)
	if len(encodings) != len(words) {
		t.Fatalf("%d instructions, of which llvm-mc knows %d", len(words), len(encodings))
	}
	for i, e := range encodings {
		if want := e[4] + e[3] + e[2] + e[1]; words[i] != want {
			t.Errorf("WORD $0x%s is not %s, which is 0x%s", words[i], instructions[i], want)
		}
	}
}
