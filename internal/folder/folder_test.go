package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// An interrupt ends the copying of a file.
func TestCopyStops(t *testing.T) {
	f, to := &Folder{Path: t.TempDir()}, t.TempDir()
	if err := os.WriteFile(filepath.Join(f.Path, "weights"), []byte("content"), 0o666); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	if err := f.Copy(ctx, "weights", filepath.Join(to, "weights"), false); !errors.Is(err, stopped) {
		t.Errorf("error %v", err)
	}
	if err := f.Copy(t.Context(), "weights", filepath.Join(to, "again", "weights"), false); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "again", "weights")); string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
}
