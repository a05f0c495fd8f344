package regularfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestOpen(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	if err := os.WriteFile(path, []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, size, err := Open(path)
	if err != nil || size != 4 {
		t.Fatal(size, err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); string(text) != "text" || err != nil {
		t.Error(text, err)
	}
	if _, _, err := Open(folder); err == nil {
		t.Error("a folder was opened")
	}
	if _, _, err := Open(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
