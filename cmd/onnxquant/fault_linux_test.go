package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
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
