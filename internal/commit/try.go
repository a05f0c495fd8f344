package commit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Try calls try with the path of a complete model: the temporary files in a folder of their own, under
// their final names.
func (t *Target) Try(ctx context.Context, try func(ctx context.Context, path string) error) error {
	folder := t.path + trySuffix
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	model := filepath.Join(folder, filepath.Base(t.path))
	paths := map[string]string{model: t.Model.Name()}
	for i, f := range t.Data {
		paths[filepath.Join(folder, t.names[i])] = f.Name()
	}
	for link, file := range paths {
		if err := os.Link(file, link); err != nil {
			return fmt.Errorf("the output cannot be tried before it gets its name: %w", err)
		}
	}
	return try(ctx, model)
}
