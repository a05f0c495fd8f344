package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"onnxquant/onnxq/rules"
)

// checkEmit tells whether a precision_info may be written to path: of files that
// exist it replaces only one that is a precision_info itself.
func checkEmit(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // made, or written to as it is
	}
	if _, err := rules.LoadPrecision(path); err != nil {
		return fmt.Errorf("%s: there is a file that is no precision_info; choose another name for --emit", path)
	}
	return nil
}

// emit writes a precision_info to path, whole or not at all.
func emit(path string, p *rules.Precision) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(path, append(raw, '\n')); err != nil {
		var pathError *fs.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// replaceFile makes raw the content of a file. What is no regular file is written to.
func replaceFile(path string, raw []byte) (err error) {
	mode := fs.FileMode(0o666)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
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
