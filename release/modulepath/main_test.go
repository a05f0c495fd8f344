package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// copied is the module as git knows it, in a new folder.
func copied(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // removed, but not yet for git
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// With another path everything compiles, tests pass, and nothing has the old path.
func TestRewrite(t *testing.T) {
	dir := copied(t)
	if err := rewrite(dir, "example.org/owner/onnxquant"); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"vet ./...",
		"test -short ./internal/testing/house ./rules ./int4 ./nvfp4 ./internal/graph",
		"test -run Test[H-P] ./onnxq ./cmd/onnxquant",
		"run ./cmd/onnxquant version",
	} {
		cmd := exec.Command("go", strings.Fields(args)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v: %s", args, err, out)
		}
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v: %s", err, out)
	}
	grep := exec.Command("grep", "-rnE", `^module onnxquant|^(import )?\s*[._a-z]* ?"onnxquant/|(^|-)[r]eplace onnxquant`, "--include=*.go", "--include=go.mod", "--include=*.md", dir)
	if out, _ := grep.Output(); len(out) > 0 {
		t.Errorf("the old path is left: %s", out)
	}
}

func TestImports(t *testing.T) {
	const text = "package p\n\nimport (\n\t\"fmt\"\n\n\t. \"onnxquant/onnxq\"\n\t\"onnxquant2/x\"\n)\n\nvar s = \"onnxquant/onnxq\"\n"
	got, err := imports(text, "onnxquant", "example.org/o/onnxquant")
	if want := strings.Replace(text, `. "onnxquant/`, `. "example.org/o/onnxquant/`, 1); err != nil || got != want {
		t.Errorf("error %v: %s", err, got)
	}
}
