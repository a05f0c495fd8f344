//go:build !unix

package cli

import (
	"errors"
	"os"
)

// checkWritable returns an error if no file can be made in a folder, by making one: permissions do not say it.
func checkWritable(folder string) error {
	f, err := os.CreateTemp(folder, ".onnxquant-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
