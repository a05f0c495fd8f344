package batch

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Of a record that does not fit on the disk nothing is left. The next one is a line of its own.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest.jsonl")
	m, err := openManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.f.Close()
	add := func(name string) error {
		return m.add(&Record{SchemaVersion: schemaVersion, Out: name, Status: Done})
	}
	if err := add("a.onnx"); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(m.end) + 10, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	failed := add("b.onnx")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if failed == nil {
		t.Error("no error")
	}
	if info, err := os.Stat(path); err != nil || info.Size() != m.end {
		t.Errorf("%v, %v, want %d bytes", info, err, m.end)
	}
	if err := add("c.onnx"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	if err := eachRecord(f, func(r *Record) { names = append(names, r.Out) }); err != nil || strings.Join(names, " ") != "a.onnx c.onnx" {
		t.Errorf("%q, %v", names, err)
	}
}
