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

// follow has the group of a command that runs killed when this process is gone, even if that was killed: a shell in the
// group waits for the end of a pipe that only this process holds. Without a shell nothing does that. The caller kills the
// group, and calls wait.
func follow(cmd *exec.Cmd) (wait func()) {
	watch := exec.Command("/bin/sh", "-c", "read -r x; kill -9 0")
	watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: cmd.Process.Pid}
	if _, err := watch.StdinPipe(); err != nil || watch.Start() != nil {
		return func() {}
	}
	return func() { watch.Wait() }
}

// shell is a command for the user's shell, in which $1 is a path.
func shell(ctx context.Context, command, path string) *exec.Cmd {
	return grouped(ctx, "/bin/sh", "-c", withPath(command, `"$1"`), "sh", path)
}
