//go:build unix

package tune

import (
	"context"
	"os/exec"
	"syscall"
)

// grouped is a command with a process group of its own, which the end of the context ends: first with SIGTERM, so that the
// program can clean up; what is left is killed by run.
func grouped(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

// killGroup kills what is left of the group of a command that has ended.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// shell is a command for the user's shell, in which $1 is a path.
func shell(ctx context.Context, command, path string) *exec.Cmd {
	return grouped(ctx, "/bin/sh", "-c", withPath(command, `"$1"`), "sh", path)
}
