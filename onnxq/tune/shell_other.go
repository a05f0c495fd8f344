//go:build !unix

package tune

import (
	"context"
	"os/exec"
	"strings"
)

// shell is a command without a shell: words are separated by spaces.
func shell(ctx context.Context, command, path string) *exec.Cmd {
	words := strings.Fields(withPath(command, "{}"))
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "{}", path)
	}
	return grouped(ctx, words[0], words[1:]...)
}
