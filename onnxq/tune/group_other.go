//go:build !unix

package tune

import (
	"context"
	"os/exec"
	"strings"
)

// grouped is a command that the end of the context kills.
func grouped(ctx context.Context, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, path, args...)
}

func killGroup(*exec.Cmd) {}

func follow(*exec.Cmd) (wait func()) { return func() {} }

// shell is a command without a shell: words are separated by spaces.
func shell(ctx context.Context, command, path string) *exec.Cmd {
	words := strings.Fields(withPath(command, "{}"))
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "{}", path)
	}
	return grouped(ctx, words[0], words[1:]...)
}
