package commit

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ReplaceFile replaces a regular file by one with the content raw, which may be at the end of a symbolic link. At any moment,
// also after a crash, the file is the complete old one or the complete new one. It keeps its permissions.
func ReplaceFile(path string, raw []byte) (err error) {
	like, err := os.Stat(path)
	if err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	f, err := createLike(freeName(func(random string) string { return path + ".~" + random }), like, os.ModePerm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(raw); err != nil {
		return err
	}
	if err := finish(f, like); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// RemoveTemporary removes what a killed ReplaceFile of path left. Nobody else may be writing the file.
func RemoveTemporary(path string) error {
	found, err := filepath.Glob(quoteGlob(path) + ".~[A-Z2-7][A-Z2-7][A-Z2-7]")
	for _, name := range found {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// quoteGlob quotes the characters of a path that mean something in a pattern.
func quoteGlob(path string) string {
	if runtime.GOOS == "windows" { // nothing quotes there, where * and ? are no part of names
		return strings.ReplaceAll(path, "[", "[[]")
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
