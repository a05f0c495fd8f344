package modelfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
)

// File is a regular file opened for reading.
type File struct {
	*os.File
	Size int64 // taken after opening
	info fs.FileInfo
}

// ReadAt implements io.ReaderAt. Every error names the file, also if the file has
// become shorter.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if err == io.EOF {
		err = fmt.Errorf("%s: %d bytes at offset %d: %w", f.Name(), len(b), off, io.ErrUnexpectedEOF)
	}
	return n, err
}

// OpenFile opens a regular file.
func OpenFile(name string) (*File, error) {
	return regular(os.OpenFile(name, os.O_RDONLY|regularfile.Nonblock, 0))
}

// errFolder is about a folder in the place of a file.
var errFolder = errors.New("is a folder")

// regular returns an error unless f is a regular file.
func regular(f *os.File, err error) (*File, error) {
	if err != nil {
		return nil, msg.Cause(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
		if info.IsDir() {
			err = errFolder
		}
	}
	if err != nil {
		f.Close()
		return nil, msg.Cause(err)
	}
	return &File{f, info.Size(), info}, nil
}

// Place implements Placed.
func (f *File) Place(off int64) Place { return Place{f.Name(), off} }
