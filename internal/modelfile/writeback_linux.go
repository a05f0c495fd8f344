package modelfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// WriteBack asks the system to begin writing a part of a file to the disk, so that
// little is left to do when the file is synced. It does not wait, and may do nothing.
func WriteBack(f *os.File, off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
