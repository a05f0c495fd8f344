package commit

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// syncFolder does nothing: folders cannot be synced here.
func syncFolder(string) error { return nil }

// setOwner does nothing: a new file belongs to who makes it.
func setOwner(*os.File, os.FileInfo) {}

// holdOpen does nothing: open files cannot be replaced here.
func holdOpen([]string) (release func()) { return func() {} }

// noFollow does not exist here. Who may make symbolic links is restricted.
const noFollow = 0

// tryLock locks a file that is open for writing. It returns false if another
// process or handle holds the lock. Closing the file unlocks it.
func tryLock(f *os.File) (bool, error) {
	// Lock one byte far after the contents, which so stay readable.
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// removeLocked closes and removes a locked file. The file stays if another process has it open and
// waits for the lock.
func removeLocked(f *os.File) {
	f.Close() // Windows does not remove open files
	os.Remove(f.Name())
}
