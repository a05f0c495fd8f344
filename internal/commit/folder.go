package commit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"onnxquant/internal/msg"
)

// Folder is a folder that is being made. It is filled under a temporary name in the same place; Commit
// renames it, Abort removes it. It is locked like a Target. The next conversion to the same folder
// removes the files that a crash leaves.
type Folder struct {
	Temp string // folder to write the files to

	path        string
	replaceable func() error
	lock        *os.File
}

var temporaryFolder = regexp.MustCompile(`^\.~[A-Z2-7]{3}(\.old)?$`)

// asideSuffix is the suffix of a folder that exchangeSlowly has moved aside.
const asideSuffix = ".old"

// CheckFolder checks whether a folder may be made at path. An empty folder may be there, or one
// with which replaceable, unless it is nil, finds nothing wrong.
func CheckFolder(path string, replaceable func() error) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(filepath.Clean(path)))
	case err == nil && len(entries) > 0 && replaceable == nil:
		err = errors.New("the folder exists; choose another one, move it away, or let --force replace what an earlier conversion made")
	case err == nil && len(entries) > 0:
		err = replaceable()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrTarget, msg.Cause(err))
	}
	return nil
}

// CreateFolder begins a folder at path, where CheckFolder must have nothing against it, then and
// when it is done.
func CreateFolder(ctx context.Context, path string, replaceable func() error) (*Folder, error) {
	if err := CheckFolder(path, replaceable); err != nil {
		return nil, err
	}
	f := &Folder{path: filepath.Clean(path), replaceable: replaceable}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		f.path = to // otherwise the link would be replaced, not the folder
	}
	var err error
	if f.lock, err = lock(ctx, f.path, nil); err == nil {
		f.Temp = freeName(func(random string) string { return f.path + ".~" + random })
		if err = f.clean(); err == nil {
			err = os.Mkdir(f.Temp, 0o777)
		}
	}
	if err != nil {
		f.Abort()
		return nil, fmt.Errorf("%s: %w: %w", path, ErrTarget, msg.Cause(err))
	}
	if err := CheckFolder(f.path, replaceable); err != nil { // clean may have brought it back
		f.Abort()
		return nil, err
	}
	return f, nil
}

// clean removes the files of conversions that crashed. If one of them moved a folder aside and put no
// other in its place, the folder gets its name back.
func (f *Folder) clean() error {
	names, err := list(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	base := filepath.Base(f.path)
	for _, name := range names {
		if len(name) <= len(base) || name[:len(base)] != base || !temporaryFolder.MatchString(name[len(base):]) {
			continue
		}
		left := filepath.Join(filepath.Dir(f.path), name)
		if info, err := os.Lstat(left); err != nil || !info.IsDir() {
			continue
		}
		if strings.HasSuffix(name, asideSuffix) && !fileExists(f.path) {
			if err := os.Rename(left, f.path); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	return nil
}

// Commit gives the folder its name.
func (f *Folder) Commit() error {
	defer f.Abort()
	err := filepath.WalkDir(f.Temp, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncFolder(path)
	})
	if err == nil {
		err = CheckFolder(f.path, f.replaceable)
	}
	if err == nil {
		os.Remove(f.path) // an empty folder
		if _, there := os.Lstat(f.path); there == nil {
			err = exchange(f.Temp, f.path)
		} else {
			err = os.Rename(f.Temp, f.path)
		}
		err = errors.Join(err, syncFolder(filepath.Dir(f.path)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.path, ErrTarget, msg.Cause(err))
	}
	return nil
}

// exchangeSlowly exchanges the names of two folders. In between, the second name is missing, which
// only a crash shows; clean repairs that.
func exchangeSlowly(a, b string) error {
	aside := freeName(func(random string) string { return b + ".~" + random + asideSuffix })
	if err := os.Rename(b, aside); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return errors.Join(err, os.Rename(aside, b))
	}
	return os.Rename(aside, a)
}

// Abort removes the temporary folder and the lock. After Commit it does nothing.
func (f *Folder) Abort() {
	if f.lock == nil {
		return
	}
	os.RemoveAll(f.Temp)
	removeLocked(f.lock)
	f.lock = nil
}
