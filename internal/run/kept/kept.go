// Package kept keeps values of samples in a folder, so that a later part of a model can go on from them.
//
// [Write] writes the values of a sample, [Read] returns them. There is a file for each sample, in the
// encoding of package gob: only the process that keeps values, or the one that takes over from it, reads them.
package kept

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

func file(folder string, sample int) string { return filepath.Join(folder, strconv.Itoa(sample)) }

// Write keeps the values of a sample. The folder must exist.
func Write(folder string, sample int, values []*execute.Tensor) error {
	for _, v := range values {
		if v.List != nil || v.DType == dtype.String {
			return fmt.Errorf("value %q is not a tensor of numbers", v.Name)
		}
	}
	f, err := os.Create(file(folder, sample))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(gob.NewEncoder(w).Encode(values), w.Flush(), f.Close())
}

// Read returns the values of a sample.
func Read(folder string, sample int) (values []*execute.Tensor, err error) {
	f, err := os.Open(file(folder, sample))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := gob.NewDecoder(bufio.NewReaderSize(f, 1<<20)).Decode(&values); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return values, nil
}
