package commit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WriteBack asks the system to begin writing a part of a file to disk, so that Sync
// has less to do later. It does not wait.
func WriteBack(f *os.File, off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// Allocate makes f as long as n and reserves its disk space at once, which is faster than piece by
// piece. It does nothing if the system cannot do that. It fails if the disk is full: writes would fail
// too, but only after the work for them.
func Allocate(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
		return fmt.Errorf("%w: %w, the file needs %d bytes", ErrTarget, err, n)
	}
	return nil
}
