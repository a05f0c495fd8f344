package verify

import (
	"os"
	"path/filepath"
	"time"
)

// folderPrefix is the prefix of temporary folders with dequantized models.
const folderPrefix = "onnxquant-verify-"

// removeLeftovers removes the folders of killed comparisons: those not changed for a
// day.
func removeLeftovers() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, f := range folders {
		if info, err := os.Lstat(f); err == nil && info.IsDir() && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(f) // fails for folders of other users, which stay
		}
	}
}
