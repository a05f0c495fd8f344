package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"onnxquant/internal/testing/golden"
)

// head begins a file with so many tensors and keys.
func head(tensors, keys uint64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, tensors), keys)
}

// key appends a key, the type of its value, and bytes of that.
func key(b []byte, name string, typ uint32, value ...byte) []byte {
	return append(binary.LittleEndian.AppendUint32(appendString(b, name), typ), value...)
}

// info appends the info of a tensor, its dimensions in the order of the file.
func info(b []byte, name string, typ Type, offset uint64, ne ...uint64) []byte {
	b = binary.LittleEndian.AppendUint32(appendString(b, name), uint32(len(ne)))
	for _, n := range ne {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, uint32(typ)), offset)
}

func array(typ uint32, n uint64, elements ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, typ), n)
	return append(b, elements...)
}

// padded ends a head where alignment is 32, and adds n bytes of data.
func padded(b []byte, n int) []byte {
	return append(b, make([]byte, int(alignUp(int64(len(b)), 32))-len(b)+n)...)
}

func TestReadRefuses(t *testing.T) {
	nested := array(typeUint8, 0)
	for range maxDepth {
		nested = array(typeArray, 1, nested...)
	}
	big := head(0, 0)
	big[4], big[7] = 0, version
	old := head(0, 0)
	old[4] = 1
	for _, c := range []struct {
		name string
		file []byte
		want string // in the message
	}{
		{"empty", nil, "does not begin with GGUF"},
		{"other", []byte("ONNX, or so"), "does not begin with GGUF"},
		{"short", []byte("GGUF\x03"), "only 1 bytes follow"},
		{"no counts", head(0, 0)[:8], "8 bytes at offset 8, but only 0 bytes follow"},
		{"one count", head(0, 0)[:20], "8 bytes at offset 16, but only 4 bytes follow"},
		{"big-endian", big, "big-endian"},
		{"version 1", old, "version 1 is not known"},
		{"many keys", head(0, 1<<60), "1152921504606846976 keys at offset 24"},
		{"many tensors", head(1<<60, 0), "tensors at offset 24"},
		{"long key", append(head(0, 1), 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0), "a string of 18446744073709551615 bytes"},
		{"empty key", key(head(0, 1), "", typeUint32, 0, 0, 0, 0), "has 0 bytes"},
		{"key twice", key(key(head(0, 2), "a", typeUint8, 1), "a", typeUint8, 2), `key "a" exists twice`},
		{"type of value", key(head(0, 1), "a", 13, 1), "type 13"},
		{"bool", key(head(0, 1), "a", typeBool, 2), "a bool at offset 37 is 2"},
		{"cut number", key(head(0, 1), "a", typeFloat64, 2), "8 bytes at offset 37, but only 1 bytes follow"},
		{"long array", key(head(0, 1), "a", typeArray, array(typeFloat64, 1<<61)...), "an array of 2305843009213693952 elements"},
		{"long strings", key(head(0, 1), "a", typeArray, array(typeString, 2, 0, 0, 0, 0, 0, 0, 0, 0)...), "an array of 2 elements"},
		{"type of array", key(head(0, 1), "a", typeArray, array(77, 0)...), "unknown type 77 of an array"},
		{"deep", key(head(0, 1), "a", typeArray, nested...), "nested"},
		{"alignment 0", key(head(0, 1), alignmentKey, typeUint32, 0, 0, 0, 0), "is 0, want a power of two"},
		{"alignment 48", key(head(0, 1), alignmentKey, typeUint32, 48, 0, 0, 0), "is 48, want a power of two"},
		{"alignment's type", key(head(0, 1), alignmentKey, typeUint8, 32), "is a uint8, want a uint32"},
		{"no name", padded(info(head(1, 0), "", F32, 0, 1), 32), "a name of 0 bytes"},
		{"name twice", padded(info(info(head(2, 0), "w", F32, 0, 1), "w", F32, 32, 1), 64), `tensor "w" exists twice`},
		{"dimensions", padded(info(head(1, 0), "w", F32, 0, 1, 1, 1, 1, 1), 32), "5 dimensions, more than 4"},
		{"dimension 0", padded(info(head(1, 0), "w", F32, 0, 1, 0), 32), "a dimension of 0"},
		{"overflow", padded(info(head(1, 0), "w", F32, 0, 1<<31, 1<<31, 1<<31), 32), "too large"},
		{"overflow of one", padded(info(head(1, 0), "w", F32, 0, math.MaxUint64), 32), "too large"},
		{"type", padded(info(head(1, 0), "w", 4, 0, 32), 32), "type 4 is not known"},
		{"block", padded(info(head(1, 0), "w", Q4_0, 0, 31), 32), "rows of 31 elements are not made of blocks of 32"},
		{"offset", padded(info(head(1, 0), "w", F32, 4, 1), 32), "its offset 4 is no multiple of the alignment, 32"},
		{"outside", padded(info(head(1, 0), "w", F32, 0, 9), 32), "36 bytes at offset 0 of the data, which begins at 64, pass the end of the file (96 bytes)"},
		{"far outside", padded(info(head(1, 0), "w", F32, math.MaxInt64-31, 1), 32), "pass the end of the file"},
		{"no data", info(head(1, 0), "w", F32, 0, 1), "pass the end of the file"},
	} {
		_, err := Read(bytes.NewReader(c.file), int64(len(c.file)))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", c.name, err, c.want)
		}
	}
}

// A file that claims to be huge costs no memory before its bytes are there.
func TestReadHugeClaims(t *testing.T) {
	b := key(head(0, 1), "a", typeArray, array(typeFloat64, 1<<50)...)
	for _, size := range []int64{1 << 40, MaxHead + 1} {
		_, err := Read(bytes.NewReader(b), size)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "at most 64 MiB") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Read(bytes.NewReader(b), 1<<40)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

func TestValues(t *testing.T) {
	metadata := []KeyValue{
		{"general.architecture", "test"},
		{"nested", []any{[]int8{-1}, []any{[]string{"", "a"}, []bool{}}, []uint64{}}},
		{"empty", []float32{}},
		{"none", []any{}},
	}
	l, err := NewLayout(metadata, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := &memory{}
	if err := l.WriteHead(out); err != nil {
		t.Fatal(err)
	}
	f, err := Read(bytes.NewReader(out.b), int64(len(out.b)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f.Metadata, metadata) {
		t.Errorf("%#v, want %#v", f.Metadata, metadata)
	}
	if f.Get("empty") == nil || f.Get("missing") != nil || f.Tensor("missing") != nil {
		t.Error("keys that are there are missing, or the reverse")
	}
	if got := TypeName(f.Get("nested")); got != "[]array" {
		t.Errorf("nested is a %s", got)
	}
	if got := TypeName(1); got != "" {
		t.Errorf("an int is a %s", got)
	}
}

func TestLayoutRefuses(t *testing.T) {
	good := Tensor{Name: "w", Type: F32, Shape: []int64{2}}
	for _, c := range []struct {
		metadata []KeyValue
		tensors  []Tensor
		want     string
	}{
		{[]KeyValue{{"", uint8(1)}}, nil, "has 0 bytes"},
		{[]KeyValue{{"a", uint8(1)}, {"a", uint8(1)}}, nil, "twice"},
		{[]KeyValue{{"a", 1}}, nil, "GGUF has no values of Go type int"},
		{[]KeyValue{{"a", []any{"b"}}}, nil, "an array of arrays holds a value of Go type string"},
		{[]KeyValue{{alignmentKey, uint32(33)}}, nil, "power of two"},
		{[]KeyValue{{alignmentKey, uint32(1 << 30)}}, nil, "is more than"},
		{[]KeyValue{{"a", strings.Repeat("b", MaxHead)}}, nil, "more than the 64 MiB"},
		{nil, []Tensor{good, good}, "twice"},
		{nil, []Tensor{{Type: F32}}, "a name of 0 bytes"},
		{nil, []Tensor{{Name: "w", Type: Q8_0, Shape: []int64{32, 8}}}, "blocks of 32"},
		{nil, []Tensor{{Name: "w", Type: Q8_0}}, "rows of 1 elements"},
		{nil, []Tensor{{Name: "v", Type: I8, Shape: []int64{math.MaxInt64 - 31}}, good}, "too large"},
	} {
		if _, err := NewLayout(c.metadata, c.tensors); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60v, %v: %v, want %q", c.metadata, c.tensors, err, c.want)
		}
	}
}

// A content cannot be written beyond its place.
func TestContentBounds(t *testing.T) {
	l, err := NewLayout(nil, []Tensor{{Name: "a", Type: F16, Shape: []int64{3}}, {Name: "b", Type: F16, Shape: []int64{3}}})
	if err != nil {
		t.Fatal(err)
	}
	w := l.Content(&memory{}, 0)
	if _, err := w.WriteAt(make([]byte, 6), 0); err != nil {
		t.Error(err)
	}
	for _, off := range []int64{-1, 1, 7, math.MaxInt64} {
		if _, err := w.WriteAt(make([]byte, 6), off); err == nil {
			t.Errorf("6 bytes at %d of 6 are accepted", off)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("a folder is opened")
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	path := filepath.Join(dir, "f.gguf")
	if err := os.WriteFile(path, []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.HasPrefix(err.Error(), path+": invalid GGUF file: ") {
		t.Errorf("no GGUF file: %v", err)
	}
}

// The types' blocks, as package ggml of the reference has them (sizeof block_q4_K …).
func TestTypes(t *testing.T) {
	for _, typ := range []Type{F32, F16, Q4_0, Q4_K, IQ4_NL, BF16, MXFP4} {
		elements, size := typ.Block()
		w := Tensor{Name: "w", Type: typ, Shape: []int64{3, 2 * elements}}
		if err := w.check(); err != nil || w.Bytes() != 6*size || w.Elements() != 6*elements || w.Row() != 2*elements {
			t.Errorf("%v: %v, %d bytes", typ, err, w.Bytes())
		}
	}
	if got := Type(4).String(); got != "type 4" {
		t.Errorf("the unknown type is called %s", got)
	}
}

// FuzzRead writes what it could read once more, and reads the same again.
func FuzzRead(f *testing.F) {
	root, err := golden.Folder()
	if err != nil {
		f.Fatal(err)
	}
	paths, _ := filepath.Glob(filepath.Join(root, "ggml", "*.gguf"))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add(head(1<<60, 1<<60))
	f.Add(key(head(0, 1), "a", typeArray, array(typeArray, 1, array(typeString, 1<<60)...)...))
	f.Add(padded(info(key(head(1, 1), alignmentKey, typeUint32, 0, 0, 0, 128), "w", Q4_K, 0, 256, 1<<50), 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if s := err.Error(); !errors.Is(err, ErrFormat) || strings.ContainsAny(s, "\n\x00\x1b") || len(s) > 1000 {
				t.Fatalf("%q", s)
			}
			return
		}
		for i := range g.Tensors {
			if n, err := io.Copy(io.Discard, g.Content(&g.Tensors[i])); err != nil || n != g.Tensors[i].Bytes() {
				t.Fatalf("%s: %d bytes of %d: %v", g.Tensors[i].Name, n, g.Tensors[i].Bytes(), err)
			}
		}
		if g.Alignment > maxAlignment {
			return
		}
		again := rewritten(t, g)
		h, err := Read(bytes.NewReader(again), int64(len(again)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rewritten(t, h), again) {
			t.Fatal("what was read from what was written differs")
		}
	})
}
