package modelfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// syncFolder does nothing: folders cannot be synced here.
func syncFolder(string) error { return nil }

// tryLock locks a file that is open for writing, unless another process or
// another handle has done so. Closing the file unlocks it.
func tryLock(f *os.File) (bool, error) {
	// One byte far behind the contents, which stay readable.
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// removeLocked removes and closes a locked file. It stays if another process has
// it open, waiting for its turn.
func removeLocked(f *os.File) {
	f.Close() // open files are not removed here
	os.Remove(f.Name())
}
