package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/testing/golden"
)

// An array of a golden file's .bin.
type array struct{ Offset, Bytes int }

func (a array) of(data []byte) []float32 {
	x := make([]float32, a.Bytes/4)
	binary.Decode(data[a.Offset:a.Offset+a.Bytes], binary.LittleEndian, x)
	return x
}

// The golden files are made anew from the float values of their tensors, and their
// tensors decode to what the reference says.
func TestGoldenBlocks(t *testing.T) {
	root, err := golden.Folder()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "ggml", "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no GGUF files in %s", root)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path[:len(path)-len(".gguf")] + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Data    string
			SHA256  string
			Tensors []struct{ X, Dequantized array }
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(filepath.Dir(path), want.Data))
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		l, err := gguf.NewLayout(f.Metadata, f.Tensors)
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if err := l.WriteHead(out); err != nil {
			t.Fatal(err)
		}
		for i := range f.Tensors {
			tensor := &f.Tensors[i]
			e, ok := ggml.LookupType(uint32(tensor.Type))
			if !ok {
				t.Fatalf("%s: no encoding for %v", path, tensor.Type)
			}
			packed := make([]byte, tensor.Bytes())
			if err := e.Quantize(packed, want.Tensors[i].X.of(data), int(tensor.Row()), nil, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Content(out, i).WriteAt(packed, 0); err != nil {
				t.Fatal(err)
			}
			x := make([]float32, tensor.Elements())
			if err := e.Dequantize(x, packed, int(tensor.Row()), 1); err != nil {
				t.Fatal(err)
			}
			d := want.Tensors[i].Dequantized
			if got, _ := binary.Append(nil, binary.LittleEndian, x); !bytes.Equal(got, data[d.Offset:d.Offset+d.Bytes]) {
				t.Errorf("%s: %s decodes to other values", path, tensor.Name)
			}
		}
		made, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(made); hex.EncodeToString(got[:]) != want.SHA256 {
			t.Errorf("%s: made anew it has SHA-256 %x, want %s", path, got, want.SHA256)
		}
	}
}

// The blocks of a type are those that package ggml makes.
func TestTypesAreEncodings(t *testing.T) {
	for _, e := range ggml.All() {
		typ := gguf.Type(e.Type)
		elements, size := typ.Block()
		if typ.String() != e.Name || elements != int64(e.Elements) || size != int64(e.Bytes) {
			t.Errorf("type %d is %v of %d elements in %d bytes, and %v of %d in %d", e.Type, typ, elements, size, e, e.Elements, e.Bytes)
		}
	}
}
