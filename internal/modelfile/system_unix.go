//go:build unix

package modelfile

import (
	"errors"
	"os"
	"syscall"
)

// syncFolder makes renames in a folder durable.
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

// noFollow keeps os.OpenFile from following a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// tryLock locks a file that is open for writing. It returns false if another
// process or handle holds the lock. Closing the file unlocks it.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// removeLocked removes a locked file and then closes it, in this order: a process
// that waits for the lock then sees that its file was removed.
func removeLocked(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}
