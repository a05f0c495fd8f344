package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
)

// CheckPlace returns an error if a file cannot be written to path, so that the command fails before it
// does the work. "" stands for no file.
func CheckPlace(path string) error {
	if path == "" {
		return nil
	}
	place := path
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: this is a folder; want the name of a file", path)
		}
		if !info.Mode().IsRegular() {
			return nil // such as a pipe
		}
		if place, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(place), ".onnxquant-*")
	if err != nil {
		return fmt.Errorf("%s: cannot write to its folder: %w", path, msg.Cause(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// CheckReplace is CheckPlace for a path at which there may be a file already: it is replaced only if it is
// empty or of the same kind. unlike says what is wrong with another one, and what to do.
func CheckReplace(path, unlike string, same func() bool) error {
	if err := CheckPlace(path); err != nil || path == "" {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 && !same() {
		return fmt.Errorf("%s: the file exists and %s", path, unlike)
	}
	return nil
}

// CheckForce refuses to replace a read-only file, or its external data, and a file of another kind than
// what is written. Renaming would replace a read-only one: that takes no permission to write to the file
// itself. An input is refused later, by a message that does not advise --force.
func CheckForce(out, kind string, inputs ...string) error {
	for _, path := range []string{out, out + ".data"} {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || isOneOf(info, inputs) {
			continue
		}
		if info.Mode()&0o200 == 0 {
			return fmt.Errorf("%s is read-only; --force replaces it", path)
		}
		if is := modelfile.Kind(path); path == out && is != "" && is != kind {
			return fmt.Errorf("%s is %s, which %s would replace; choose another name, or --force", Printable(path), is, kind)
		}
	}
	return nil
}

// isOneOf reports whether a file is one of those at paths.
func isOneOf(file os.FileInfo, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && os.SameFile(file, info)
	})
}

// WriteFile is replaceFile with errors that begin with the path.
func WriteFile(path string, raw []byte) error {
	if err := replaceFile(path, raw); err != nil {
		return fmt.Errorf("%s: %w", path, msg.Cause(err))
	}
	return nil
}

// replaceFile replaces a file by one with the content raw. It writes to a file that is not
// regular, such as a pipe, directly.
func replaceFile(path string, raw []byte) (err error) {
	mode := fs.FileMode(0o666)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			signal.Reset() // to open a pipe without a reader waits; a signal then ends the process
			return os.WriteFile(path, raw, mode)
		}
		mode = info.Mode().Perm()
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path+".~"+rand.Text()[:6], os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
