package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"onnxquant/internal/regularfile"
)

const (
	magic   = "GGUF"
	version = 3

	// DefaultAlignment is the alignment of a file without general.alignment.
	DefaultAlignment = 32
	// MaxName is the least length in bytes of a tensor's name that ggml's reader
	// refuses.
	MaxName = 64
	// MaxHead is the largest size in bytes of everything before the data: several times that of a
	// large vocabulary.
	MaxHead = 64 << 20

	maxAlignment = 1 << 20 // in files to write
	maxDims      = 4
	maxKey       = 1<<16 - 1
)

const alignmentKey = "general.alignment"

// ErrFormat is wrapped by errors about a file that is not GGUF, or is broken.
var ErrFormat = errors.New("invalid GGUF file")

// File is an opened file: its metadata and infos in memory, the contents of its
// tensors on disk.
type File struct {
	Version   uint32     // 2 or 3, which are the same for this package
	Metadata  []KeyValue // in the order of the file
	Tensors   []Tensor   // in the order of the file
	Alignment int64      // of contents, in bytes
	Data      int64      // offset of the tensors' data in the file, in bytes
	Size      int64      // of the file, in bytes

	r      io.ReaderAt
	closer io.Closer
	byName map[string]int
}

// Tensor describes a tensor and the place of its content.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int64 // as in ONNX: the last dimension is contiguous
	Offset int64   // of the content from the beginning of the data, in bytes
}

// Open opens the file at path, which must be closed after use.
func Open(path string) (*File, error) {
	f, size, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	g, err := Read(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	g.closer = f
	return g, nil
}

// Close closes a file that Open has opened.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Get returns the value of a key, or nil.
func (f *File) Get(key string) any {
	for _, kv := range f.Metadata {
		if kv.Key == key {
			return kv.Value
		}
	}
	return nil
}

// Tensor returns the tensor with a name, or nil.
func (f *File) Tensor(name string) *Tensor {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Content returns the bytes of a tensor of the file.
func (f *File) Content(t *Tensor) *io.SectionReader {
	return io.NewSectionReader(f.r, f.Data+t.Offset, t.Bytes())
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Row returns the elements of a row, which is the last dimension.
func (t *Tensor) Row() int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// Bytes returns the size of the content.
func (t *Tensor) Bytes() int64 {
	elements, bytes := t.Type.Block()
	return t.Elements() / max(elements, 1) * bytes
}

// check returns an error if a tensor is invalid, wherever its content is.
func (t *Tensor) check() error {
	if t.Name == "" || len(t.Name) > maxKey {
		return fmt.Errorf("tensor %s has a name of %d bytes", short(t.Name), len(t.Name))
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("tensor %s: "+format, append([]any{short(t.Name)}, args...)...)
	}
	elements, bytes := t.Type.Block()
	switch {
	case !t.Type.Known():
		return bad("%v is not known", t.Type)
	case len(t.Shape) > maxDims:
		return bad("%d dimensions, more than %d", len(t.Shape), maxDims)
	}
	n := int64(1)
	for _, d := range t.Shape {
		switch {
		case d <= 0:
			return bad("a dimension of %d", d)
		case d > math.MaxInt64/bytes/n:
			return bad("shape %v is too large", t.Shape)
		}
		n *= d
	}
	if t.Row()%elements != 0 {
		return bad("its rows of %d elements are not made of blocks of %d, as %v has", t.Row(), elements, t.Type)
	}
	return nil
}

// alignmentOf returns the alignment of a file, from its general.alignment.
func alignmentOf(v any) (int64, error) {
	if v == nil {
		return DefaultAlignment, nil
	}
	a, ok := v.(uint32)
	switch {
	case !ok:
		return 0, fmt.Errorf("%s is a %s, want a uint32", alignmentKey, TypeName(v))
	case a == 0 || a&(a-1) != 0:
		return 0, fmt.Errorf("%s is %d, want a power of two", alignmentKey, a)
	}
	return int64(a), nil
}

func alignUp(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// short quotes a name for a message.
func short(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return strconv.Quote(name)
}
