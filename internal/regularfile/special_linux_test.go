package regularfile

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// Nobody writes to the pipe, and the device has no end: both would hang.
func TestSpecialFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", "/dev/null"} {
		if _, _, err := Open(path); !errors.Is(err, ErrNot) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
