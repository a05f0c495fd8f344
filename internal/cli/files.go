package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
	"onnxquant/internal/remote"
)

// CheckPlace returns an error if a file cannot be written to path, so that the command fails before it
// does the work. "" stands for no file.
func CheckPlace(path string) error {
	if path == "" {
		return nil
	}
	if err := remote.CheckFile(path); err != nil {
		return Usagef("%v", err)
	}
	place := path
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: this is a folder; want the name of a file", path)
		}
		if !info.Mode().IsRegular() {
			return checkStream(path, info.Mode())
		}
		if place, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	if err := checkWritable(filepath.Dir(place)); err != nil {
		return fmt.Errorf("%s: cannot write to its folder: %w", path, msg.Cause(err))
	}
	return nil
}

// checkStream returns an error if a file that is not regular cannot be written to. A terminal, /dev/null and
// the pipe of a shell, such as /dev/stdout, can. A named pipe cannot: to open it waits for a reader.
func checkStream(path string, mode fs.FileMode) error {
	kind := "not a regular file"
	switch {
	case mode&fs.ModeCharDevice != 0, mode&fs.ModeNamedPipe != 0 && isDescriptor(path):
		return nil
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("%s: this is %s; want the name of a file, or /dev/stdout", path, kind)
}

// isDescriptor reports whether a path names an open file of this process, such as /dev/fd/63. On Linux it is
// a link that leads to no path.
func isDescriptor(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err != nil || filepath.Dir(real) == "/dev/fd" || real == "/dev/stdout" || real == "/dev/stderr"
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
// regular, such as /dev/stdout, directly.
func replaceFile(path string, raw []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeStream(path, info.Mode(), raw)
	}
	return commit.ReplaceFile(path, raw)
}

// writeStream writes to a file that is not regular, without creating one. If nobody reads, a signal ends the
// process.
func writeStream(path string, mode fs.FileMode, raw []byte) error {
	if err := checkStream(path, mode); err != nil {
		return err
	}
	signal.Reset()
	f, err := os.OpenFile(path, os.O_WRONLY|regularfile.Nonblock, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	return errors.Join(err, f.Close())
}
