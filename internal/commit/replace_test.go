package commit

import (
	"os"
	"path/filepath"
	"testing"
)

// A file is replaced where it is, with its permissions; files beside it stay.
func TestReplaceFile(t *testing.T) {
	folder := t.TempDir()
	path, other, link := filepath.Join(folder, "a.json"), filepath.Join(folder, "a.json.tmp"), filepath.Join(folder, "link")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	symlink(t, "a.json", link)
	if err := ReplaceFile(link, []byte("second")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "second", link: "second", other: "mine"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	before, _ := os.Stat(path)
	if err := ReplaceFile(filepath.Join(folder, "no", "a"), nil); err == nil {
		t.Error("a file without a folder")
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) != 3 || before.Mode().Perm()&0o077 != 0o040 {
		t.Errorf("%v, %v, mode %v", list, err, before.Mode())
	}
}
