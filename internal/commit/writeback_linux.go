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

// Allocate makes f as long as n and finds room for it on the disk at once, which takes less than
// finding it piece by piece. Where the system cannot do that, nothing happens. It fails if there is
// no room: writes would fail, too, but only after the work for them.
func Allocate(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
		return fmt.Errorf("%w: %w, the file needs %d bytes", ErrTarget, err, n)
	}
	return nil
}
