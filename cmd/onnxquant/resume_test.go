//go:build linux || darwin

package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// A command that finds what stays in float is killed again and again, each time when it has kept twice as much. With --resume, it then
// writes the bytes of a command that runs undisturbed: for a model, and for a folder of models.
func TestKilledActivations(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	in, folder := filepath.Join(t.TempDir(), "in"), t.TempDir()
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := os.Mkdir(in, 0o777); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a.onnx", "b.onnx"} {
		if err := testmodels.MLP(uint64(i), 32, 32, 32).Write(filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := modeltest.WriteSamples(data, 8, 32); err != nil {
		t.Fatal(err)
	}
	run := func(from, out string, more ...string) *exec.Cmd {
		return exec.Command("onnxquant", append(more, "--quiet", "--activations", "static", "--algorithm", "gptq", "--min-sqnr", "45", "--allow-fallback", "--calib", data, from, out)...)
	}
	contents := func(out string, names ...string) (all []byte) {
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		return all
	}
	for _, c := range []struct {
		from, quiet, out string
		names            []string
	}{
		{filepath.Join(in, "a.onnx"), "quiet.onnx", "out.onnx", []string{""}},
		{in, "quiet", "out", []string{"a.onnx", "b.onnx"}},
	} {
		quiet, out := filepath.Join(folder, c.quiet), filepath.Join(folder, c.out)
		if b, err := run(c.from, quiet).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		kills := 0
		for tries := 1; kills == 0; tries++ { // on a slow machine, a command may end before it is seen
			if tries == 10 {
				t.Fatalf("%s: the command is too fast to be killed", c.out)
			}
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			for killed(t, folder, run(c.from, out, "--resume")) {
				kills++
			}
		}
		if got, want := contents(out, c.names...), contents(quiet, c.names...); !bytes.Equal(got, want) {
			t.Errorf("%s: killed %d times, the output differs", c.out, kills)
		}
		if left, _ := filepath.Glob(out + ".~*"); len(left) > 0 {
			t.Errorf("%s: left %q", c.out, left)
		}
	}
}

// killed runs a command, and kills it as soon as journals in a folder are twice as large as at first. It reports whether it killed it.
func killed(t *testing.T, folder string, cmd *exec.Cmd) bool {
	t.Helper()
	first := journals(folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil && cmd.ProcessState.ExitCode() >= 0 {
				t.Fatal(err)
			}
			return err != nil
		case <-time.After(5 * time.Millisecond):
		}
		switch now := journals(folder); {
		case first == 0:
			first = now
		case now > 2*first:
			cmd.Process.Kill()
		}
	}
}

// journals is the size of all journals in a folder.
func journals(folder string) (size int64) {
	filepath.WalkDir(folder, func(_ string, f fs.DirEntry, err error) error {
		if err == nil && f.Name() == "measured" {
			if info, err := f.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
