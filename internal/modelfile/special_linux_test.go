package modelfile

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Pipes and devices are neither models nor external data; opening them does not hang.
func TestSpecialFiles(t *testing.T) {
	w := tensor(dtype.Float32, 1)
	w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: ptr("location"), Value: ptr("data")}}
	path := writeModel(t, model(w))
	data := filepath.Join(filepath.Dir(path), "data")
	refused := func(what string) {
		t.Helper()
		for _, name := range []string{path, data} {
			m, err := Open(name)
			if err == nil {
				m.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: error %v", what, err)
			}
		}
		if err := os.Remove(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(data, 0o666); err != nil {
		t.Fatal(err)
	}
	refused("a pipe")

	l, err := net.Listen("unix", data)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if m, err := Open(path); err == nil {
		m.Close()
		t.Error("a socket is opened")
	}
	l.Close()

	const zero = 1<<8 | 5
	if err := syscall.Mknod(data, syscall.S_IFCHR|0o666, zero); err != nil {
		t.Skipf("devices cannot be made (root can): %v", err)
	}
	refused("a device")
}
