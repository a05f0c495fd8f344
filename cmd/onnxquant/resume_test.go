//go:build linux || darwin

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// A command that finds what stays in float is killed again and again, later each time. With --resume, it then writes the bytes of a
// command that runs undisturbed: for a model, and for a folder of models.
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
		start := time.Now()
		if b, err := run(c.from, quiet).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		took, kills := time.Since(start), 0
		for i := 1; ; i++ {
			cmd := run(c.from, out, "--resume")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(took*time.Duration(i)/4, func() { cmd.Process.Kill() })
			err := cmd.Wait()
			if timer.Stop(); err == nil {
				break
			}
			if kills++; cmd.ProcessState.ExitCode() >= 0 {
				t.Fatalf("killed %d times: %v", kills, err)
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
