// Package regularfile opens regular files only. Reading a pipe that nobody writes to would
// block forever, and a device may have no end.
package regularfile

import (
	"errors"
	"io/fs"
	"os"
)

// ErrNot says that a path names no regular file. It comes in an *fs.PathError.
var ErrNot = errors.New("not a regular file")

// Open opens a regular file for reading and returns its size.
func Open(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|Nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNot}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
