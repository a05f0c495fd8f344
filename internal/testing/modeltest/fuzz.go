package modeltest

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// DataSize is the size of the files of external data that the fuzz targets write.
const DataSize = 4096

// WriteFuzzed writes a model, and the data under every plain name that it gives for
// external data.
func WriteFuzzed(t testing.TB, path string, model, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, model, 0o666); err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if proto.Unmarshal(model, m) != nil {
		return
	}
	for _, w := range modelfile.Tensors(m) {
		e, err := modelfile.ParseExternal(w)
		if err != nil || e.Location != filepath.Base(e.Location) || len(e.Location) > 100 || e.Location == filepath.Base(path) {
			continue
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), e.Location), data, 0o666); err != nil {
			return // no name on this system
		}
	}
}
