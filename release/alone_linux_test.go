package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// runAlone runs the command where there is nothing else, as in an image made from scratch.
func runAlone(t *testing.T, command string) {
	if os.Geteuid() != 0 {
		t.Log("not run alone: only root can")
		return
	}
	root := t.TempDir()
	for name, from := range map[string]string{"onnxquant": command, "in.onnx": "../testmodels/tinygpt/model.onnx"} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--quiet", "in.onnx", "out.onnx"}, {"verify", "--engine", "go", "in.onnx", "out.onnx"}} {
		cmd := exec.Command("/onnxquant", args...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", &syscall.SysProcAttr{Chroot: root}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}
