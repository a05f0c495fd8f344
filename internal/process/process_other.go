//go:build !unix

package process

import (
	"context"
	"os"
	"os/exec"
)

// Grouped is a command that the end of the context kills: there are no signals here.
func Grouped(ctx context.Context, _ os.Signal, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, path, args...)
}

// KillGroup kills nothing here.
func KillGroup(*exec.Cmd) {}

// Follow does nothing here.
func Follow(*exec.Cmd) (wait func()) { return func() {} }
