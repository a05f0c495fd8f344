//go:build unix

package commit

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file that is replaced keeps its owner, its group and its permissions.
func TestOwnerStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	path := filepath.Join(t.TempDir(), "out.onnx")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 5678); err != nil {
		t.Fatal(err)
	}
	target, err := Create(t.Context(), path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Model.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := target.Commit(t.Context(), func(io.WriterAt, []string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	is := info.Sys().(*syscall.Stat_t)
	if info.Size() != 3 || is.Uid != 1234 || is.Gid != 5678 || info.Mode().Perm() != 0o640 {
		t.Errorf("%d bytes, owner %d, group %d, mode %v", info.Size(), is.Uid, is.Gid, info.Mode())
	}
}
