package commit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file for which there is no room is told before it is written.
func TestAllocate(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Allocate(f, 1<<20); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	if err := Allocate(f, 1<<62); !errors.Is(err, ErrTarget) {
		t.Errorf("more than any disk: %v, want %v", err, ErrTarget)
	}
}
