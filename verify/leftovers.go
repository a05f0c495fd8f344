package verify

import (
	"os"
	"path/filepath"
	"time"
)

// folderPrefix begins the names of folders with models whose weights are folded.
const folderPrefix = "onnxquant-verify-"

// removeLeftovers removes such folders of comparisons that were killed: those that
// nothing was put into for a day.
func removeLeftovers() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, f := range folders {
		if info, err := os.Lstat(f); err == nil && info.IsDir() && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(f) // if it is ours to remove
		}
	}
}
