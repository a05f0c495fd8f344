package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Every command in the README and in docs runs: each line of a code block that begins with
// onnxquant, page by page, in a folder with the files that the pages speak of. A comment
//
//	<!-- not run: REASON -->
//
// in front of a block leaves it out.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts, n := t.TempDir(), 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands := documented(t, page, string(text))
		if len(commands) == 0 {
			continue
		}
		n += len(commands)
		script := filepath.Join(scripts, strings.TrimSuffix(filepath.Base(page), ".md")+".txtar")
		if err := os.WriteFile(script, []byte(strings.Join(commands, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if n < 40 {
		t.Errorf("only %d commands are found", n)
	}
	testscript.Run(t, testscript.Params{Dir: scripts, RequireExplicitExec: true, Setup: documentedFiles,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"status": checkStatus}})
}

// documented returns the commands of a page as lines of a script.
func documented(t *testing.T, page, text string) []string {
	var commands []string
	fenced, skip := false, ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if reason := regexp.MustCompile(`^<!-- not run: (.+) -->$`).FindStringSubmatch(trimmed); reason != nil {
			skip = reason[1]
			continue
		}
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if trimmed == "" {
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			skip = "" // the block is over
			continue
		}
		command := strings.TrimPrefix(trimmed, "$ ")
		command = strings.Replace(command, "go run ./cmd/onnxquant ", "onnxquant ", 1)
		if !strings.HasPrefix(command, "onnxquant ") {
			continue
		}
		if skip != "" {
			t.Logf("%s:%d is not run: %s", page, i+1, skip)
			continue
		}
		command = regexp.MustCompile(`\b(IN|OUT|MODEL)\b`).ReplaceAllStringFunc(command, func(s string) string { return strings.ToLower(s) + ".onnx" })
		word := "exec "
		if strings.HasPrefix(command, "onnxquant diff ") {
			word = "status 1 " // the examples show differences
		}
		commands = append(commands, word+command)
	}
	return commands
}

// documentedFiles makes what the pages take as given: a model, quantized ones, inputs.
func documentedFiles(env *testscript.Env) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(root, "testmodels"), filepath.Join(env.WorkDir, "testmodels")); err != nil {
		return err
	}
	model, err := os.ReadFile(filepath.Join(root, "testmodels", "tinygpt", "model.onnx"))
	if err != nil {
		return err
	}
	files := map[string][]byte{"model.onnx": model, "in.onnx": model, "head.json": []byte(`{"onnx::MatMul_54*": 8}`)}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), data, 0o666); err != nil {
			return err
		}
	}
	for name, style := range map[string]string{"tinygpt-int4.onnx": "dq", "int4.onnx": "dq", "nbits.onnx": "nbits"} {
		cmd := exec.Command("onnxquant", "--bits", "4", "--block", "32", "--style", style, "model.onnx", name)
		cmd.Dir = env.WorkDir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	for _, name := range []string{"batch0.npz", "batch1.npz"} {
		f, err := os.Create(filepath.Join(env.WorkDir, name))
		if err != nil {
			return err
		}
		z := zip.NewWriter(f)
		w, err := z.Create("x.npy")
		if err == nil {
			_, err = w.Write(array("2x3", []float32{1, 2, 3, 4, 5, 6}))
		}
		if err := errors.Join(err, z.Close(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
