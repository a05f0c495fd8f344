//go:build unix

package commit

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

// setOwner gives a file the owner and the group of other, as far as the process is allowed to.
func setOwner(f *os.File, other os.FileInfo) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	want, ok2 := other.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || is.Uid == want.Uid && is.Gid == want.Gid {
		return
	}
	if f.Chown(int(want.Uid), int(want.Gid)) != nil {
		f.Chown(-1, int(want.Gid))
	}
}

// holdOpen keeps the contents of files until release is called, whatever happens to their names.
func holdOpen(names []string) (release func()) {
	var held []*os.File
	for _, name := range names {
		if f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			held = append(held, f)
		}
	}
	return func() {
		for _, f := range held {
			f.Close()
		}
	}
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

// removeLocked removes a locked file and then closes it. In this order, a process that waits for the
// lock sees that its file was removed.
func removeLocked(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}
