package commit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A folder appears whole or not at all, and what a crash has left is removed.
func TestFolder(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "out")
	write := func(f *Folder, name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(f.Temp, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	create := func() *Folder {
		t.Helper()
		f, err := CreateFolder(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	dead := create()
	write(dead, "old")
	dead.lock.Close() // as if the process had died
	others := []string{"out.~ABCD", "out.~abc", "xout.~ABC"}
	for _, name := range others {
		if err := os.Mkdir(filepath.Join(parent, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	given := create()
	write(given, "b")
	given.Abort()
	if got := names(t, parent); !slices.Equal(got, others) {
		t.Errorf("after a crash and an end: %q", got)
	}
	f := create()
	write(f, "c")
	if fileExists(path) {
		t.Error("it is there too early")
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, parent); !slices.Equal(got, append([]string{"out"}, others...)) || !slices.Equal(names(t, path), []string{"c"}) {
		t.Errorf("in the end: %q", got)
	}
	if _, err := CreateFolder(t.Context(), path, nil); !errors.Is(err, ErrTarget) {
		t.Errorf("over another folder: %v", err)
	}
}

// If a folder of the name appears meanwhile, it stays.
func TestFolderAppears(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := CreateFolder(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "precious"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); !errors.Is(err, ErrTarget) || !slices.Equal(names(t, path), []string{"precious"}) {
		t.Errorf("error %v", err)
	}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"out"}) {
		t.Errorf("left %q", got)
	}
}

// A folder that may be replaced is, as a whole; the old one stays if that changes its mind.
func TestFolderReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.MkdirAll(filepath.Join(path, "old"), 0o777); err != nil {
		t.Fatal(err)
	}
	var refusal error
	replace := func() error {
		f, err := CreateFolder(t.Context(), path, func() error { return refusal })
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(f.Temp, "new"), 0o777); err != nil {
			t.Fatal(err)
		}
		return f.Commit()
	}
	if err := replace(); err != nil || !slices.Equal(names(t, path), []string{"new"}) {
		t.Errorf("%q, error %v", names(t, path), err)
	}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"out"}) {
		t.Errorf("left %q", got)
	}
	refusal = errors.New("precious")
	if _, err := CreateFolder(t.Context(), path, func() error { return refusal }); !errors.Is(err, refusal) || !errors.Is(err, ErrTarget) {
		t.Errorf("error %v", err)
	}
	a, b := filepath.Join(t.TempDir(), "a"), path
	if err := os.Mkdir(a, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := exchangeSlowly(a, b); err != nil || len(names(t, b)) > 0 || !slices.Equal(names(t, a), []string{"new"}) {
		t.Errorf("exchanged: %q and %q, error %v", names(t, a), names(t, b), err)
	}
}

// Where a link leads to a folder, that is replaced and the link stays.
func TestFolderBehindLink(t *testing.T) {
	parent := t.TempDir()
	path, link := filepath.Join(parent, "there", "out"), filepath.Join(parent, "link")
	if err := os.MkdirAll(filepath.Join(path, "old"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	f, err := CreateFolder(t.Context(), link, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(f.Temp, "new"), 0o777), f.Commit()); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != path || !slices.Equal(names(t, path), []string{"new"}) {
		t.Errorf("the link leads to %q, the folder has %q, error %v", to, names(t, path), err)
	}
}

// A crash between the renamings of exchangeSlowly loses nothing.
func TestFolderMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	aside, half := path+".~ABC"+asideSuffix, path+".~DEF"
	for _, name := range []string{filepath.Join(aside, "old"), filepath.Join(half, "new")} {
		if err := os.MkdirAll(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	refusal := errors.New("precious")
	if _, err := CreateFolder(t.Context(), path, func() error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("error %v", err)
	}
	if got := names(t, path); !slices.Equal(got, []string{"old"}) {
		t.Errorf("%q", got)
	}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"out"}) {
		t.Errorf("left %q", got)
	}
}
