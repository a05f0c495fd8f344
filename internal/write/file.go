package write

import (
	"context"
	"errors"
	"fmt"
	"io"

	"onnxquant/internal/commit"
	"onnxquant/internal/modelfile"
)

// ErrVerify is wrapped by errors about a file that differs from what was written.
var ErrVerify = errors.New("verification failed")

// File is a file to be made from a model. It appears complete or not at all, and the model is
// never written to.
type File struct {
	Path     string
	Model    *modelfile.Model
	Data     []string // names of the external data files in the same folder
	NoVerify bool     // do not read the file again to verify it

	// Seal, if set, completes the parts that depend on all contents.
	Seal func(w io.WriterAt) error

	// Try, if set, gets the path of the finished file before it is renamed. If it fails, so does the file.
	Try func(ctx context.Context, path string) error

	// Rename, if set, rewrites the parts that depend on the names of the external data files.
	Rename func(w io.WriterAt, locations []string) error
}

// Content supplies the contents of a file.
type Content interface {
	// Write writes everything to the target.
	Write(ctx context.Context, t *commit.Target) error
	Verifier
}

// Verifier checks a written file.
type Verifier interface {
	// Verify reads the target and compares it with the contents that were written.
	Verify(ctx context.Context, t *commit.Target) error
}

// Write writes content to temporary files, verifies them and renames them.
func (f File) Write(ctx context.Context, content Content) error {
	target, err := f.Begin(ctx)
	if err != nil {
		return err
	}
	return f.Finish(ctx, target, content, content.Write(ctx, target))
}

// Begin creates the temporary files. The caller writes them, and calls Finish.
func (f File) Begin(ctx context.Context) (*commit.Target, error) {
	return commit.Create(ctx, f.Path, f.Model, f.Data)
}

// Finish verifies the files that Begin created, and renames them. If err, the result of writing them,
// is not nil, it removes them.
func (f File) Finish(ctx context.Context, target *commit.Target, content Verifier, err error) error {
	defer target.Abort()
	if changed := f.Model.Unchanged(); changed != nil {
		return changed
	}
	if err == nil && f.Seal != nil {
		err = f.Seal(target.Model)
	}
	if err == nil && !f.NoVerify {
		target.Flush()
		err = content.Verify(ctx, target)
	}
	if err == nil && f.Try != nil {
		err = target.Try(ctx, f.Try)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return target.Commit(ctx, f.Rename)
}
