package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"onnxquant/internal/msg"
	"onnxquant/onnxq/rules"
)

// checkEmit returns an error if a precision_info cannot or must not be written to path: an existing
// file is replaced only if it is empty or a precision_info. "" stands for none.
func checkEmit(path string) error {
	if err := checkPlace(path); err != nil {
		return err
	}
	if !hasContent(path) {
		return nil
	}
	if _, err := rules.LoadPrecision(path); err != nil {
		return fmt.Errorf("%s: the file exists and is not a precision_info; choose another file for --emit", path)
	}
	return nil
}

// checkPlace returns an error if a file cannot be written to path, which is better known before
// the work that makes its content. "" stands for no file.
func checkPlace(path string) error {
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

// hasContent reports whether path is a regular file that is not empty.
func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// emit writes a precision_info to path, completely or not at all.
func emit(path string, p *rules.Precision) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(raw, '\n'))
}

// writeFile is replaceFile with errors that begin with the path.
func writeFile(path string, raw []byte) error {
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
