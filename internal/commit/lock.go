package commit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
)

// lockWait is the longest time to wait for another conversion to the same target.
var lockWait = time.Minute

const lockPoll = 10 * time.Millisecond

// lockPath returns the file that is locked while a model is written to path. It is also the
// journal of its owner, and is removed in the end. So a lock file with content was left by a
// conversion that died.
func lockPath(path string) string { return path + ".~lock" }

// lock waits for the exclusive right to write to path, among all processes and
// goroutines. The returned file holds the lock until it is closed. If it has to wait, it calls
// waits once, unless that is nil.
func lock(ctx context.Context, path string, waits func()) (*os.File, error) {
	name := lockPath(path)
	for deadline := time.Now().Add(lockWait); ; {
		if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file; remove it", filepath.Base(name))
		}
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|regularfile.Nonblock|noFollow, 0o666)
		if err != nil {
			return nil, msg.Cause(err)
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
			return nil, fmt.Errorf("another conversion is writing %s", filepath.Base(path))
		}
		if waits != nil {
			waits()
			waits = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}

// Lock waits for the exclusive right to write to path, as a conversion does before it writes
// there. It lasts until unlock is called. If it has to wait, it calls waits once.
func Lock(ctx context.Context, path string, waits func()) (unlock func(), err error) {
	f, err := lock(ctx, path, waits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, err)
	}
	return func() { removeLocked(f) }, nil
}

// isAt reports whether the open file f is still the file called name. Since it was
// opened, another process may have removed it, and a third one may have created a
// new file.
func isAt(f *os.File, name string) bool {
	opened, err1 := f.Stat()
	named, err2 := os.Lstat(name)
	return errors.Join(err1, err2) == nil && os.SameFile(opened, named) && named.Mode().IsRegular()
}
