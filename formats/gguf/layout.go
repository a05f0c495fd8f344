package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Layout is a new file with an encoded head and the offsets of its tensors. Contents may be
// written in any order, by several workers.
type Layout struct {
	Tensors []Tensor // with their offsets
	Data    int64    // offset of the tensors' data in the file, in bytes
	Size    int64    // of the whole file, in bytes

	alignment int64
	head      []byte // with the padding before the data
}

// NewLayout encodes metadata and the infos of tensors, and sets their offsets. The alignment
// is general.alignment in the metadata, or the default.
func NewLayout(metadata []KeyValue, tensors []Tensor) (*Layout, error) {
	l := &Layout{Tensors: slices.Clone(tensors), alignment: DefaultAlignment}
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(metadata)))
	seen := map[string]bool{}
	for _, kv := range metadata {
		typ, _, ok := typeOf(kv.Value)
		switch {
		case kv.Key == "" || len(kv.Key) > maxKey:
			return nil, fmt.Errorf("key %s has %d bytes", short(kv.Key), len(kv.Key))
		case seen[kv.Key]:
			return nil, fmt.Errorf("key %s exists twice", short(kv.Key))
		case !ok:
			return nil, fmt.Errorf("key %s: GGUF has no values of Go type %T", short(kv.Key), kv.Value)
		}
		seen[kv.Key] = true
		b = appendString(b, kv.Key)
		b = binary.LittleEndian.AppendUint32(b, typ)
		var err error
		if b, err = appendValue(b, kv.Value); err == nil && kv.Key == alignmentKey {
			if l.alignment, err = alignmentOf(kv.Value); l.alignment > maxAlignment {
				err = fmt.Errorf("%d is more than %d", l.alignment, maxAlignment)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", short(kv.Key), err)
		}
	}
	b, err := l.place(b)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > MaxHead {
		return nil, fmt.Errorf("metadata and infos take %d bytes, more than the %d MiB that this package reads", len(b), MaxHead>>20)
	}
	l.Data = alignUp(int64(len(b)), l.alignment)
	l.head = append(b, make([]byte, l.Data-int64(len(b)))...)
	l.Size += l.Data
	return l, nil
}

// place sets the offsets of tensors and the size of their data, and appends their infos.
func (l *Layout) place(b []byte) ([]byte, error) {
	seen := map[string]bool{}
	for i := range l.Tensors {
		t := &l.Tensors[i]
		if err := t.check(); err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %s exists twice", short(t.Name))
		}
		seen[t.Name] = true
		t.Offset = l.Size
		if l.Size = alignUp(l.Size+t.Bytes(), l.alignment); l.Size < t.Offset {
			return nil, fmt.Errorf("tensor %s: all together are too large for a file", short(t.Name))
		}
		b = appendString(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
	}
	return b, nil
}

// WriteHead writes everything except the contents of tensors: the head, and the zeros behind
// each content.
func (l *Layout) WriteHead(w io.WriterAt) error {
	if _, err := w.WriteAt(l.head, 0); err != nil {
		return err
	}
	zeros := make([]byte, l.alignment)
	for i := range l.Tensors {
		t := &l.Tensors[i]
		end := t.Offset + t.Bytes()
		if gap := alignUp(end, l.alignment) - end; gap > 0 {
			if _, err := w.WriteAt(zeros[:gap], l.Data+end); err != nil {
				return err
			}
		}
	}
	return nil
}

// Content returns a writer for the content of tensor i in w.
func (l *Layout) Content(w io.WriterAt, i int) io.WriterAt {
	t := &l.Tensors[i]
	return &section{w, l.Data + t.Offset, t.Bytes()}
}

// section is a part of a file.
type section struct {
	w         io.WriterAt
	base, len int64
}

func (s *section) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 || int64(len(b)) > s.len-off {
		return 0, fmt.Errorf("gguf: %d bytes at offset %d of a content of %d", len(b), off, s.len)
	}
	return s.w.WriteAt(b, s.base+off)
}
