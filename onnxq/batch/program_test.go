//go:build unix

package batch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An interrupt reaches a conversion once, from the batch and not from the terminal too, and the conversion cleans up.
func TestProgramInterrupt(t *testing.T) {
	folder := t.TempDir()
	program, log := filepath.Join(folder, "program"), filepath.Join(folder, "log")
	script := "#!/bin/sh\ntrap 'sleep 0.2; echo cleaned >>" + log + "; exit 1' INT\necho $$ >" + log + "\nwhile :; do sleep 0.01; done\n"
	if err := os.WriteFile(program, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Program{Path: program}.Convert(ctx, Call{In: "in.onnx", Out: "out.onnx"})
		ended <- err
	}()
	pid := 0
	for deadline := time.Now().Add(10 * time.Second); pid == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(log); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the conversion %d is in group %d, %v", pid, group, err)
	}
	stop(stopped)
	if err := <-ended; !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), "cleaned") != 1 {
		t.Errorf("%q, %v", text, err)
	}
}
