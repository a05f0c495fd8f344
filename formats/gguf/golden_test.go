package gguf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/golden"
)

// description is what the reference says of a file.
type description struct {
	Version    uint32
	Alignment  int64
	DataOffset int64 `json:"data_offset"`
	Bytes      int64
	SHA256     string
	KV         []struct {
		Key       string
		Type      string
		ArrayType string `json:"array_type"`
		Value     json.RawMessage
		Bits      json.RawMessage // of floats, which decimals need not be exact for
	}
	Tensors []struct {
		Name       string
		Type       string
		TypeID     Type `json:"type_id"`
		Shape      []int64
		NBytes     int64
		SHA256     string
		Offset     int64
		FileOffset int64 `json:"file_offset"`
	}
}

// Every file that the reference has described is read as it says, and comes out
// byte for byte when it is written anew.
func TestGoldenFiles(t *testing.T) {
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
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(strings.TrimSuffix(path, ".gguf") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want description
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			want.compare(t, f)
			if got := sum(rewritten(t, f)); got != want.SHA256 {
				t.Errorf("written anew it has SHA-256 %s, want %s", got, want.SHA256)
			}
		})
	}
}

func (want *description) compare(t *testing.T, f *File) {
	if f.Version != want.Version || f.Alignment != want.Alignment || f.Data != want.DataOffset || f.Size != want.Bytes {
		t.Errorf("version %d, alignment %d, data at %d, %d bytes; want %d, %d, %d, %d",
			f.Version, f.Alignment, f.Data, f.Size, want.Version, want.Alignment, want.DataOffset, want.Bytes)
	}
	if len(f.Metadata) != len(want.KV) || len(f.Tensors) != len(want.Tensors) {
		t.Fatalf("%d keys and %d tensors, want %d and %d", len(f.Metadata), len(f.Tensors), len(want.KV), len(want.Tensors))
	}
	for i, w := range want.KV {
		kv := f.Metadata[i]
		typ, value := strings.ToLower(w.Type), w.Value
		if typ == "array" {
			typ = "[]" + strings.ToLower(w.ArrayType)
		}
		if w.Bits != nil {
			value = w.Bits
		}
		if kv.Key != w.Key || TypeName(kv.Value) != typ {
			t.Errorf("key %d is %s, a %s; want %s, a %s", i, kv.Key, TypeName(kv.Value), w.Key, typ)
		}
		var text any
		if err := json.Unmarshal(value, &text); err != nil {
			t.Fatal(err)
		}
		if got, want := spelt(kv.Value), fmt.Sprint(text); got != want {
			t.Errorf("%s is %s, want %s", kv.Key, got, want)
		}
	}
	for i, w := range want.Tensors {
		g := &f.Tensors[i]
		if g.Name != w.Name || g.Type != w.TypeID || g.Type.String() != w.Type || !slices.Equal(g.Shape, w.Shape) || g.Bytes() != w.NBytes || g.Offset != w.Offset || f.Data+g.Offset != w.FileOffset {
			t.Errorf("tensor %d is %+v of %d bytes, want %+v", i, g, g.Bytes(), w)
		}
		if got := sum(content(t, f, g)); got != w.SHA256 {
			t.Errorf("tensor %s has SHA-256 %s, want %s", g.Name, got, w.SHA256)
		}
	}
}

// spelt writes a value as the descriptions do: 64-bit integers are strings, floats
// the hexadecimal of their bits.
func spelt(v any) string {
	switch v := v.(type) {
	case float32:
		return fmt.Sprintf("%08x", math.Float32bits(v))
	case float64:
		return fmt.Sprintf("%016x", math.Float64bits(v))
	case []float32:
		return each(v)
	case []float64:
		return each(v)
	case uint32, int32: // as a JSON number is printed
		return fmt.Sprint(asFloat(v))
	case []uint32:
		return each(v)
	case []int32:
		return each(v)
	}
	return fmt.Sprint(v)
}

func each[T any](v []T) string {
	var all []string
	for _, x := range v {
		all = append(all, spelt(x))
	}
	return "[" + strings.Join(all, " ") + "]"
}

func asFloat(v any) float64 {
	if u, ok := v.(uint32); ok {
		return float64(u)
	}
	return float64(v.(int32))
}

func content(t *testing.T, f *File, tensor *Tensor) []byte {
	b := make([]byte, tensor.Bytes())
	if _, err := f.Content(tensor).ReadAt(b, 0); err != nil {
		t.Fatalf("%s: %v", tensor.Name, err)
	}
	return b
}

// rewritten returns the bytes of a file that has what f has.
func rewritten(t *testing.T, f *File) []byte {
	l, err := NewLayout(f.Metadata, f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	out := &memory{}
	for i := range slices.Backward(f.Tensors) { // the order does not matter
		if _, err := l.Content(out, i).WriteAt(content(t, f, &f.Tensors[i]), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.WriteHead(out); err != nil {
		t.Fatal(err)
	}
	if int64(len(out.b)) != l.Size {
		t.Errorf("%d bytes, and the layout says %d", len(out.b), l.Size)
	}
	return out.b
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// memory is a file in memory, whose bytes are not zero until they are written.
type memory struct{ b []byte }

func (m *memory) WriteAt(b []byte, off int64) (int, error) {
	if need := int(off) + len(b); need > len(m.b) {
		m.b = append(m.b, bytes.Repeat([]byte{0xee}, need-len(m.b))...)
	}
	return copy(m.b[off:], b), nil
}
