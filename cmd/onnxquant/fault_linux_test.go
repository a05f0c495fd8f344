package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onnxquant/internal/testing/modeltest"
)

// The disk is full at any moment of the writing, and has room again.
func TestFaultFullDisk(t *testing.T) {
	s := newStage(t)
	mount := func(size int64, flags uintptr) error {
		return syscall.Mount("none", s.folder, "tmpfs", flags, fmt.Sprintf("size=%d", size))
	}
	const roomy = 1 << 30
	if err := mount(roomy, 0); err != nil {
		t.Skipf("a file system in memory cannot be mounted (root can): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(s.folder, 0); err != nil {
			t.Error(err)
		}
	})
	page := int64(os.Getpagesize())
	for range 1 + *kills/10 {
		s.convert(s.job())
		before := hashes(t, s.folder)
		taken := int64(0)
		for _, n := range fileSizes(t, s.folder) {
			taken += (n + page - 1) / page
		}
		j, room := s.job(), int64(0)
		for _, n := range j.sizes {
			room += n / page // at least a page too little
		}
		if err := mount((taken+s.rng.Int64N(room))*page, syscall.MS_REMOUNT); err != nil {
			t.Fatal(err)
		}
		b, err := s.command("onnxquant", j, s.out()).CombinedOutput()
		s.failed(b, err, before, syscall.ENOSPC.Error())
		if err := mount(roomy, syscall.MS_REMOUNT); err != nil {
			t.Fatal(err)
		}
		s.convert(j)
	}
}

// A folder that does not fit on the disk is not written, and one line says why.
func TestFolderFullDisk(t *testing.T) {
	in, disk := t.TempDir(), t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a file system in memory cannot be mounted (root can): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	weight := modeltest.Floats("w", 1024, 512)
	model := modeltest.Write(t, modeltest.Model(modeltest.Tensors{weight}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
	for _, name := range []string{"a.onnx", "b.onnx"} {
		if err := os.Link(model, filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(in, "config.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("onnxquant", "-q", "--preset", "transformers.js", in, filepath.Join(disk, "out"))
	b, err := c.CombinedOutput()
	if err == nil || strings.Count(string(b), "\n") != 1 || !strings.Contains(string(b), "the disk is full") {
		t.Errorf("%v: %s", err, b)
	}
	if left := modeltest.List(t, disk); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
