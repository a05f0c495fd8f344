//go:build unix

package process

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// Grouped is a command with a process group of its own, to which the end of the context sends a signal, so that the program can
// clean up. A signal of the terminal does not reach it. KillGroup kills what is left.
func Grouped(ctx context.Context, signal os.Signal, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, signal.(syscall.Signal)) }
	return cmd
}

// KillGroup kills what is left of the group of a command that has ended.
func KillGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Follow has the group of a command that runs killed when this process is gone, even if that was killed: a shell in the
// group waits for the end of a pipe that only this process holds. Without a shell nothing does that. The caller kills the
// group, and calls wait.
func Follow(cmd *exec.Cmd) (wait func()) {
	watch := exec.Command("/bin/sh", "-c", "read -r x; kill -9 0")
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: cmd.Process.Pid}
	if _, err := watch.StdinPipe(); err != nil || watch.Start() != nil {
		return func() {}
	}
	return func() { watch.Wait() }
}
