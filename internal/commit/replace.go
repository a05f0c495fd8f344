package commit

import (
	"os"
	"path/filepath"
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
