package journal

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A journal that cannot be opened is none. One that is resumed has no samples of the search that was killed.
func TestOpen(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	j, err := Open(t.Context(), folder, "key", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add("entry", nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(true); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(folder, "samples-1")
	if err := os.MkdirAll(filepath.Join(left, "more"), 0o777); err != nil {
		t.Fatal(err)
	}
	kept := 0
	j, err = Open(t.Context(), folder, "key", Options{Resume: true, Temporary: "samples-", Resumed: func(n int) { kept = n }})
	if err != nil || len(j.known) != 1 || kept != 1 {
		t.Fatalf("%+v, %v, %d", j, err, kept)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("samples are left")
	}
	if err := j.Close(true); err != nil {
		t.Fatal(err)
	}
	// The folder cannot be removed by this name, after it is locked.
	if j, err := Open(t.Context(), folder+string(filepath.Separator)+".", "other", Options{}); j != nil || err == nil {
		t.Errorf("%+v, %v", j, err)
	}
}

// What was measured stays if it cannot be opened, or if files of the earlier run cannot be removed. With another key it is gone.
func TestCannotResume(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	open := func(key string, resume bool) (begins bool, err error) {
		j, err := Open(t.Context(), folder, key, Options{Resume: resume, Temporary: "samples-", Begins: func() { begins = true }})
		return begins, errors.Join(err, j.Close(true))
	}
	if begins, err := open("key", false); begins || err != nil {
		t.Fatal(begins, err)
	}
	path, aside := filepath.Join(folder, fileName), filepath.Join(folder, "aside")
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	rename(path, aside)
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if begins, err := open("key", true); begins || err == nil || !strings.HasPrefix(err.Error(), "cannot resume: ") {
		t.Error(begins, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	rename(aside, path)
	if runtime.GOOS != "windows" && os.Geteuid() != 0 { // nothing stops these from removing files
		left := filepath.Join(folder, "samples-1")
		if err := os.MkdirAll(filepath.Join(left, "more"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(left, 0o555); err != nil {
			t.Fatal(err)
		}
		if begins, err := open("key", true); begins || err == nil {
			t.Error(begins, err)
		}
		if err := os.Chmod(left, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if begins, err := open("key", true); begins || err != nil {
		t.Error(begins, err)
	}
	if begins, err := open("other", true); !begins || err != nil {
		t.Error(begins, err)
	}
}

// What was measured is not measured again, in the same order. Others are.
func TestRemember(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	finds := 0
	find := func() (int, error) { finds++; return 40 + finds, nil }
	run := func(resume bool, whats ...string) (all []int) {
		j, err := Open(t.Context(), folder, "key", Options{Resume: resume})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close(true)
		for _, what := range whats {
			x, err := Remember(j, what, find)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
		return all
	}
	if got := run(false, "a", "b"); !slices.Equal(got, []int{41, 42}) {
		t.Error(got)
	}
	if got := run(true, "a", "b", "c"); !slices.Equal(got, []int{41, 42, 43}) {
		t.Error(got)
	}
	if got := run(true, "a", "c", "b"); !slices.Equal(got, []int{41, 44, 45}) {
		t.Error(got)
	}
	if _, err := Remember(nil, "a", func() (int, error) { return 0, errors.New("failed") }); err == nil {
		t.Error("an error of a search without a journal is lost")
	}
}
