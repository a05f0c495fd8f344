// Package modeltest has what the tests of several packages share: models on disk, opened
// and converted.
package modeltest

import (
	"log"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
	"onnxquant/testmodels"
)

// Build writes a test model of a kind and returns its path.
func Build(t testing.TB, kind string) string {
	t.Helper()
	m, err := testmodels.Build(kind, 1)
	if err != nil {
		t.Fatal(err)
	}
	return Write(t, m)
}

// Write writes a model to a folder of the test and returns its path.
func Write(t testing.TB, m *testmodels.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.onnx")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Open opens a model until the test ends.
func Open(t testing.TB, path string) *onnxq.Model {
	t.Helper()
	m, err := onnxq.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Read reads the message in a model file, with the contents of its tensors.
func Read(t testing.TB, path string) *onnxpb.ModelProto {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Tensor returns the first tensor of that name and its content.
func Tensor(t testing.TB, m *onnxq.Model, name string) (*onnxpb.TensorProto, []byte) {
	t.Helper()
	file := m.Graph().File
	for _, w := range modelfile.Tensors(file.Proto) {
		if w.GetName() == name {
			p, err := file.Payload(w)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, p.Size())
			if err := buffer.ReadFull(p, b, 0); err != nil {
				t.Fatal(err)
			}
			return w, b
		}
	}
	t.Fatalf("no tensor %q", name)
	return nil, nil
}

// List returns the names of the files in a folder.
func List(t testing.TB, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Example writes a test model for an example and returns its path, one for an output, and
// what removes both.
func Example(kind string) (in, out string, remove func()) {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	m, err := testmodels.Build(kind, 1)
	if err != nil {
		log.Fatal(err)
	}
	in = filepath.Join(folder, "in.onnx")
	if err := m.Write(in); err != nil {
		log.Fatal(err)
	}
	return in, filepath.Join(folder, "out.onnx"), func() { os.RemoveAll(folder) }
}

// Graph writes a model and opens its graph until the test ends.
func Graph(t testing.TB, m *onnxpb.ModelProto) *graph.Graph {
	t.Helper()
	return Open(t, Write(t, &testmodels.Model{Proto: m})).Graph()
}
