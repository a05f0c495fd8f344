package folder

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/provenance"
)

// Target is a folder that is being made. It appears whole or not at all: the files go to the
// folder Temp, Commit gives it its name, Abort removes it.
type Target = commit.Folder

// Create begins a folder at path. Only an empty folder may exist there. With replace, a folder may
// exist in which each file is from an earlier conversion or will be written again, which has reports.
func Create(ctx context.Context, path string, replace bool, has func(name string) bool) (*Target, error) {
	return commit.CreateFolder(ctx, path, replaceable(path, replace, has))
}

// Check checks whether Create could begin a folder.
func Check(path string, replace bool, has func(name string) bool) error {
	return commit.CheckFolder(path, replaceable(path, replace, has))
}

func replaceable(path string, replace bool, has func(name string) bool) func() error {
	if !replace {
		return nil
	}
	return func() error {
		old, err := Scan(path)
		if err != nil {
			return err
		}
		lost := slices.Clone(old.Problems)
		for _, name := range old.Models {
			if !has(name) && !hasRecord(old.File(name)) {
				lost = append(append(lost, name), old.Data[name]...)
			}
		}
		lost = append(lost, slices.DeleteFunc(slices.Clone(old.Others), has)...)
		if len(lost) > 0 {
			return fmt.Errorf("--force would remove %s, which no conversion made and this one does not write; move it, or choose another folder", filepath.Join(path, filepath.FromSlash(lost[0])))
		}
		return nil
	}
}

// hasRecord reports whether a model has a record of how it was made.
func hasRecord(path string) bool {
	m, err := modelfile.Open(path)
	if err != nil {
		return false
	}
	defer m.Close()
	return len(provenance.Of(m.Proto)) > 0
}
