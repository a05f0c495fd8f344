package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onnxquant/internal/cli"
	"onnxquant/testmodels"
)

// A signal stops a conversion, whatever it is at, and neither the output nor a temporary file is
// left behind.
func TestSignalStops(t *testing.T) {
	for _, flags := range [][]string{nil, {"--preset", "transformers.js"}, {"--preset", "transformers.js", "--calib", "self", "--dry-run"}} {
		for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cli.SignalError{Signal: sig})
			dir := t.TempDir()
			in := filepath.Join(dir, "in.onnx")
			if err := testmodels.MLP(1, 64, 64).Write(in); err != nil {
				t.Fatal(err)
			}
			stderr := new(bytes.Buffer)
			c := cli.ConsoleOn(io.Discard, stderr)
			status := program().Run(ctx, c, append(flags, in, filepath.Join(dir, "out")))
			if status != want || !strings.HasSuffix(stderr.String(), "stopped by a signal: "+sig.String()+"\n") || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("%q, %v: status %d, %q", flags, sig, status, stderr)
			}
			if files, _ := os.ReadDir(dir); len(files) != 1 {
				t.Errorf("%q, %v: left %v", flags, sig, files)
			}
		}
	}
}

// A search that is stopped says that its folder has results.
func TestSignalKeepsWork(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.SignalError{Signal: syscall.SIGINT})
	dir := t.TempDir()
	in := filepath.Join(dir, "in.onnx")
	if err := testmodels.MLP(1, 64, 64).Write(in); err != nil {
		t.Fatal(err)
	}
	stderr := new(bytes.Buffer)
	status := program().Run(ctx, cli.ConsoleOn(io.Discard, stderr), []string{"tune", "--quiet", "--score", "echo 1", "--max-drop", "0", "--work", filepath.Join(dir, "kept"), in, filepath.Join(dir, "out.onnx")})
	if want := "onnxquant: stopped by a signal: interrupt; --work keeps what was measured: the same command goes on from there\n"; status != 130 || stderr.String() != want {
		t.Errorf("status %d, %q, want %q", status, stderr, want)
	}
}
