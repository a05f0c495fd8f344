//go:build unix

package modelfile

import (
	"errors"
	"os"
	"syscall"
)

// nonblock keeps the opening of a pipe nobody writes to from hanging.
const nonblock = syscall.O_NONBLOCK

// syncFolder makes renames in a folder last through a crash.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
