package write_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/commit"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/write"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// content writes a text to the model file and one to the external data file, if there is one.
type content struct {
	writeErr, verifyErr error
	meanwhile           func()
}

func (c content) Write(_ context.Context, t *commit.Target) error {
	if c.meanwhile != nil {
		c.meanwhile()
	}
	for _, f := range append([]*os.File{t.Model}, t.Data...) {
		if _, err := f.WriteString("new"); err != nil {
			return err
		}
	}
	return c.writeErr
}

func (c content) Verify(context.Context, *commit.Target) error { return c.verifyErr }

// A file appears if its content is written and verified. Else the old one stays, or none,
// and nothing is left beside it.
func TestFile(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name     string
		content  content
		noVerify bool
		want     error
	}{
		{name: "good"},
		{name: "write fails", content: content{writeErr: broken}, want: broken},
		{name: "verify fails", content: content{verifyErr: write.ErrVerify}, want: write.ErrVerify},
		{name: "not verified", content: content{verifyErr: write.ErrVerify}, noVerify: true},
	} {
		for _, old := range []string{"", "old"} {
			t.Run(c.name+" "+old, func(t *testing.T) {
				in := modeltest.Open(t, modeltest.Build(t, "plain"))
				folder := t.TempDir()
				path := filepath.Join(folder, "out.onnx")
				want := old
				if old != "" {
					if err := os.WriteFile(path, []byte(old), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				err := write.File{Path: path, Model: in.Graph().File, NoVerify: c.noVerify}.Write(context.Background(), c.content)
				if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if c.want == nil {
					want = "new"
				}
				checkFolder(t, folder, map[string]string{"out.onnx": want})
			})
		}
	}
}

// The external data file appears with the model file. Where both replace others, the model
// is written again for the time in which its data has another name.
func TestFileWithExternalData(t *testing.T) {
	path := modeltest.Build(t, "mlp")
	in := modeltest.Open(t, path)
	folder := t.TempDir()
	out := filepath.Join(folder, "out.onnx")
	renamed := 0
	f := write.File{
		Path: out, Model: in.Graph().File, Data: []string{"out.onnx.data"},
		Rename: func(w io.WriterAt, locations []string) error {
			if renamed++; len(locations) != 1 || locations[0] == "out.onnx.data" || len(locations[0]) != len("out.onnx.data") {
				t.Errorf("renamed to %q", locations)
			}
			return nil
		},
	}
	write := func(want int) {
		t.Helper()
		if err := f.Write(context.Background(), content{}); err != nil {
			t.Fatal(err)
		}
		if renamed != want {
			t.Errorf("renamed %d times, want %d", renamed, want)
		}
		checkFolder(t, folder, map[string]string{"out.onnx": "new", "out.onnx.data": "new"})
	}
	write(0)
	for _, name := range modeltest.List(t, folder) {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	modeltest.Convert(t, path, out, onnxq.Options{ExternalData: spec.ExternalAlways})
	write(1)
}

// A model that changes while it is read gives no file, whatever the content says.
func TestFileOfChangedModel(t *testing.T) {
	for _, writeErr := range []error{nil, errors.New("broken")} {
		path := modeltest.Build(t, "external")
		in := modeltest.Open(t, path)
		folder := t.TempDir()
		cut := func() {
			if err := os.Truncate(filepath.Join(filepath.Dir(path), "weights.bin"), 0); err != nil {
				t.Error(err)
			}
		}
		err := write.File{Path: filepath.Join(folder, "out.onnx"), Model: in.Graph().File}.Write(context.Background(), content{writeErr: writeErr, meanwhile: cut})
		if err == nil || !strings.Contains(err.Error(), "it was changed while it was read") {
			t.Errorf("error %v", err)
		}
		checkFolder(t, folder, nil)
	}
}

// checkFolder checks the files of a folder and their contents; empty ones are not there.
func checkFolder(t *testing.T, folder string, want map[string]string) {
	t.Helper()
	for _, name := range modeltest.List(t, folder) {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want[name] {
			t.Errorf("%s holds %q, want %q", name, got, want[name])
		}
	}
	for name, text := range want {
		if _, err := os.Stat(filepath.Join(folder, name)); (err == nil) != (text != "") {
			t.Errorf("%s: %v, want %q", name, err, text)
		}
	}
}
