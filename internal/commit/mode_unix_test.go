//go:build unix

package commit_test

import (
	"os"
	"path/filepath"
	"testing"

	"onnxquant/internal/commit"
	"onnxquant/internal/testing/modeltest"
)

// A new output is no more open than its input. A replaced file keeps its permissions.
func TestModeOfOutput(t *testing.T) {
	for _, c := range []struct{ in, replaced, want os.FileMode }{
		{0o600, 0, 0o600},
		{0o640, 0, 0o640},
		{0o644, 0, 0o644},
		{0o400, 0, 0o600},
		{0o600, 0o644, 0o644},
	} {
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 4, 4)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
		if err := os.Chmod(in, c.in); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out.onnx")
		if c.replaced != 0 {
			if err := os.WriteFile(out, nil, c.replaced); err != nil {
				t.Fatal(err)
			}
		}
		m := modeltest.Open(t, in)
		target, err := commit.Create(t.Context(), out, m.Graph().File, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := target.Model.Stat()
		target.Abort()
		if err != nil || info.Mode().Perm() != c.want {
			t.Errorf("input %o, replaced %o: %o, %v; want %o", c.in, c.replaced, info.Mode().Perm(), err, c.want)
		}
	}
}
