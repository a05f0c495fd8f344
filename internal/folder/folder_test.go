package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An interrupt ends the copying of a file.
func TestCopyStops(t *testing.T) {
	f, to := &Folder{Path: t.TempDir()}, t.TempDir()
	if err := os.WriteFile(filepath.Join(f.Path, "weights"), []byte("content"), 0o666); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	if err := f.Copy(ctx, "weights", filepath.Join(to, "weights"), false); !errors.Is(err, stopped) {
		t.Errorf("error %v", err)
	}
	if err := f.Copy(t.Context(), "weights", filepath.Join(to, "again", "weights"), false); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "again", "weights")); string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
}

// A model gets the data that have its name. Others get what is left, together or one by one.
func TestDataFor(t *testing.T) {
	data := t.TempDir()
	for _, name := range []string{"encoder/x.npz", "decoder.npz", "more.npz"} {
		path := filepath.Join(data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	f := &Folder{Models: []string{"onnx/encoder.onnx", "decoder.onnx", "other.onnx"}}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(data, name))
		}
		return paths
	}
	unfit := errors.New("unfit")
	for _, c := range []struct {
		model string
		given []string
		takes func(path string) bool
		want  []string
	}{
		{"onnx/encoder.onnx", []string{data}, nil, in("encoder")},
		{"decoder.onnx", []string{data}, nil, in("decoder.npz")},
		{"other.onnx", []string{data}, nil, in("more.npz")},
		{"other.onnx", in("encoder", "more.npz"), nil, in("more.npz")},
		{"other.onnx", in("encoder"), nil, in("encoder")},
		{"other.onnx", []string{"a", "b"}, nil, []string{"a", "b"}},
		{"other.onnx", []string{"a", "b"}, func(path string) bool { return path == "b" }, []string{"b"}},
		{"other.onnx", []string{"a", "b"}, func(string) bool { return false }, nil},
	} {
		got, err := f.DataFor(c.model, c.given, func(paths []string) error {
			if c.takes != nil && slices.ContainsFunc(paths, func(p string) bool { return !c.takes(p) }) {
				return unfit
			}
			return nil
		})
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || err != nil && err != unfit {
			t.Errorf("%s of %q: %q, %v", c.model, c.given, got, err)
		}
	}
}
