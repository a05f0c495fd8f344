package main

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"onnxquant/testmodels"
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
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := givenFiles(t, root)
	testscript.Run(t, testscript.Params{
		Dir:                 scripts,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			return errors.Join(os.CopyFS(env.WorkDir, os.DirFS(files)), os.Symlink(filepath.Join(root, "testmodels"), filepath.Join(env.WorkDir, "testmodels")))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"status": checkStatus},
	})
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

// givenFiles makes a folder with what the pages take as given: a model, quantized ones, inputs.
func givenFiles(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	model, err := os.ReadFile(filepath.Join(root, "testmodels", "tinygpt", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "model", "onnx"), 0o777), os.Mkdir(filepath.Join(dir, "checkpoint"), 0o777)); err != nil {
		t.Fatal(err)
	}
	mlp, err := testmodels.Build("mlp", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "models"), 0o777), mlp.Write(filepath.Join(dir, "models", "a.onnx"))); err != nil {
		t.Fatal(err)
	}
	const bias = `{"blocks.0.n1.bias": {"dtype": "F32", "shape": [192], "data_offsets": [0, 768]}}`
	for name, data := range map[string][]byte{
		"model.onnx": model, "in.onnx": model, "decoder.onnx": model, "head.json": []byte(`{"/head/MatMul": 8}`),
		"model/onnx/model.onnx": model, "model/config.json": []byte(`{"model_type": "gpt2"}`), "checkpoint/model.safetensors": append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(bias))), bias...), make([]byte, 768)...),
		"model/genai_config.json": []byte(`{"model": {"decoder": {"filename": "onnx/model.onnx"}}}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	writeArrays(t, filepath.Join(dir, "batch0.npz"), "x", array("<f4", "2x3", []float32{1, 2, 3, 4, 5, 6}))
	writeArrays(t, filepath.Join(dir, "batch1.npz"), "x", array("<f4", "2x3", []float32{6, 5, 4, 3, 2, 1}))
	for _, name := range []string{"data.npz", "ids.npz"} {
		writeArrays(t, filepath.Join(dir, name), "ids", array("<i8", "1x8", []int64{1, 2, 3, 4, 5, 6, 7, 8}))
	}
	for _, args := range []string{
		"-bits 4 -block 32 model.onnx int4.onnx",
		"-bits 4 -block 32 model.onnx tinygpt-int4.onnx",
		"-bits 4 -block 32 model.onnx out.onnx",
		"-bits 4 -block 32 --style nbits model.onnx nbits.onnx",
		"calibrate --data data.npz -o ranges.json model.onnx",
	} {
		cmd := exec.Command("onnxquant", strings.Fields(args)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	return dir
}

// writeArrays writes a .npz file with one array.
func writeArrays(t *testing.T, path, name string, data []byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create(name + ".npy")
	if err == nil {
		_, err = w.Write(data)
	}
	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
