//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A folder is asked whether a file can be made in it. Nothing is made: the folder does not change.
func TestCheckPlace(t *testing.T) {
	folder := t.TempDir()
	file, old := filepath.Join(folder, "file"), time.Unix(1e9, 0)
	if err := os.WriteFile(file, nil, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(folder, old, old); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file:                            "",
		filepath.Join(folder, "other"):  "",
		folder:                          "this is a folder",
		filepath.Join(file, "below"):    "cannot write to its folder: not a directory",
		filepath.Join(folder, "a", "b"): "cannot write to its folder: no such file or directory",
	} {
		err := CheckPlace(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if info, err := os.Stat(folder); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the folder has changed: %v, %v", info.ModTime(), err)
	}
	if os.Getuid() == 0 {
		return // may write everywhere
	}
	if err := os.Chmod(folder, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := CheckPlace(filepath.Join(folder, "other")); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("of a folder that cannot be written: %v", err)
	}
}
