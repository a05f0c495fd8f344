//go:build unix

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command has a group of its own, gets the signal, and what it started is killed.
func TestGrouped(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	ctx, stop := context.WithCancel(t.Context())
	cmd := Grouped(ctx, os.Interrupt, "/bin/sh", "-c", `trap 'sleep 0.1; echo cleaned; exit 3' INT; echo > "$0"; while :; do sleep 0.01; done`, ready)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(ready); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if group, err := syscall.Getpgid(cmd.Process.Pid); err != nil || group != cmd.Process.Pid {
		t.Errorf("group %d of %d, %v", group, cmd.Process.Pid, err)
	}
	stop()
	if err := cmd.Wait(); err == nil || strings.TrimSpace(out.String()) != "cleaned" {
		t.Errorf("%q, %v", out.String(), err)
	}
	KillGroup(cmd)
}
