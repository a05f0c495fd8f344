package commit

import (
	"os"
	"path/filepath"
	"testing"
)

// What a killed ReplaceFile left goes, other files stay.
func TestRemoveTemporary(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a[1]")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "out.json")
	for _, name := range []string{path, path + ".~Q7F", path + ".~lock", path + ".~Q7FX"} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTemporary(path); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 3 {
		t.Errorf("%v, %v", left, err)
	}
}
