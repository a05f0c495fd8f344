package onnxq_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

// The input's external data may be removed or changed while they are read.
func TestInputChangesMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(data string) error
		fails bool
	}{
		{"cut off", func(data string) error { return os.Truncate(data, 1000) }, true},
		{"emptied", func(data string) error { return os.Truncate(data, 0) }, true},
		{"written to", func(data string) error {
			f, err := os.OpenFile(data, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("more")
			return err
		}, true},
		{"removed", os.Remove, false}, // an open file can still be read
		{"replaced", func(data string) error {
			if err := os.WriteFile(data+"2", []byte("another"), 0o666); err != nil {
				return err
			}
			return os.Rename(data+"2", data)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.fails && runtime.GOOS == "windows" {
				t.Skip("open files cannot be removed here")
			}
			in := modeltest.Build(t, "external")
			opts := onnxq.Options{Block: 32, Threads: 1}
			want := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), opts)

			folder := t.TempDir()
			out := filepath.Join(folder, "out.onnx")
			if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			opts.Progress = func(done, total int64) {
				once.Do(func() {
					if err := c.do(filepath.Join(filepath.Dir(in), "weights.bin")); err != nil {
						t.Error(err)
					}
				})
			}
			_, err := onnxq.Convert(context.Background(), in, out, opts)
			if c.fails {
				want = []byte("old")
				if err == nil || !strings.Contains(err.Error(), "weights.bin: it was changed while it was read") {
					t.Errorf("error %v", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the output has %d bytes, want %d (%v)", len(got), len(want), err)
			}
			if names := modeltest.List(t, folder); len(names) != 1 {
				t.Errorf("the folder holds %q", names)
			}
		})
	}
}
