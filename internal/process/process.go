// Package process finds programs, and starts commands that end with what started them, and with all that they start.
package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Beside finds a program of ours: first in the folder of this program, where it has the same version, then on the PATH.
func Beside(name string) (path string, ok bool) {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	path, err := exec.LookPath(name)
	return path, err == nil
}
