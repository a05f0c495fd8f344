package verify

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRemoveLeftovers(t *testing.T) {
	temp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} {
		t.Setenv(name, temp)
	}
	yesterday := time.Now().Add(-25 * time.Hour)
	for name, age := range map[string]time.Time{
		folderPrefix + "old": yesterday, folderPrefix + "new": time.Now(), "others": yesterday,
	} {
		path := filepath.Join(temp, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "in"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
	}
	removeLeftovers()
	for name, stays := range map[string]bool{folderPrefix + "old": false, folderPrefix + "new": true, "others": true} {
		if _, err := os.Stat(filepath.Join(temp, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}
