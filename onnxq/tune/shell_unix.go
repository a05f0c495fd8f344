//go:build unix

package tune

import (
	"context"
	"os/exec"
)

// shell is a command for the user's shell, in which $1 is a path.
func shell(ctx context.Context, command, path string) *exec.Cmd {
	return grouped(ctx, "/bin/sh", "-c", withPath(command, `"$1"`), "sh", path)
}
