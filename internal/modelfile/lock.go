package modelfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"onnxquant/internal/regularfile"
)

// lockWait is how long a target waits for another conversion to end, lockPoll how
// often it looks.
var lockWait = time.Minute

const lockPoll = 10 * time.Millisecond

// lockPath is the file that is locked while a model is written to path. It
// begins as an empty file and is removed in the end, so that one which holds
// something is left of a conversion that died while it put its files in place.
func lockPath(path string) string { return path + ".~lock" }

// lock makes the caller the only one, among processes and within this one, that
// writes to path. Others take turns. The file that is returned holds the lock until
// it is closed.
func lock(ctx context.Context, path string) (*os.File, error) {
	name := lockPath(path)
	for deadline := time.Now().Add(lockWait); ; {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|regularfile.Nonblock, 0o666)
		if err != nil {
			return nil, plain(err)
		}
		locked, err := tryLock(f)
		if locked && isAt(f, name) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("the file system does not lock files (%w); choose an output on another one", err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another conversion writes %s", filepath.Base(path))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}

// isAt reports whether a file is the one that has the name. Another process may
// have removed it after it was opened here, and a third may have made it anew.
func isAt(f *os.File, name string) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Lstat(name)
	return errors.Join(err1, err2) == nil && os.SameFile(opened, named) && named.Mode().IsRegular()
}
