package ort

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The explicit path comes first, then the environment that is active. There the latest version
// counts.
func TestFindLibrary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the names of the files are those of Linux")
	}
	prefix := t.TempDir()
	folder := filepath.Join(prefix, "lib", "python3.12", "site-packages", "onnxruntime", "capi")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libonnxruntime.so.1.9.2", "libonnxruntime.so.1.31.1", "libonnxruntime.so.1.4.0", "libonnxruntime_providers_shared.so"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("VIRTUAL_ENV", prefix)
	t.Setenv(LibraryVariable, "")
	find := func(named, want string) {
		t.Helper()
		if path, err := findLibrary(t.Context(), named); err != nil || path != filepath.Join(folder, want) {
			t.Errorf("%q: %s, %v", named, path, err)
		}
	}
	find("", "libonnxruntime.so.1.31.1")
	t.Setenv(LibraryVariable, filepath.Join(folder, "libonnxruntime.so.1.4.0"))
	find("", "libonnxruntime.so.1.4.0")
	find(filepath.Join(folder, "libonnxruntime.so.1.9.2"), "libonnxruntime.so.1.9.2")
	if _, err := findLibrary(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a folder: %v", err)
	}
}

// A relative path in an environment variable names the working folder, whose code must not run.
func TestNotTheWorkingFolder(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	below := filepath.Join("lib", "python3.12", "site-packages", "onnxruntime", "capi")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "libonnxruntime.so.1.31.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "."} {
		t.Setenv("VIRTUAL_ENV", prefix)
		t.Setenv(LibraryVariable, "")
		t.Setenv("PATH", "")
		if path, err := findLibrary(t.Context(), ""); err == nil && strings.HasPrefix(path, folder) || err == nil && !filepath.IsAbs(path) {
			t.Errorf("VIRTUAL_ENV=%q: %s", prefix, path)
		}
	}
}
