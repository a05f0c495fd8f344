package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// maxDepth is how deep arrays may be nested.
const maxDepth = 8

// Read reads the head of a file of size bytes, and checks that the content of each tensor is
// inside the file.
func Read(r io.ReaderAt, size int64) (*File, error) {
	f := &File{Size: size, r: r, byName: map[string]int{}}
	d := &decoder{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), left: min(size, MaxHead), cut: size > MaxHead}
	if err := f.read(d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return f, nil
}

func (f *File) read(d *decoder) error {
	if f.Size < int64(len(magic)) || string(d.bytes(int64(len(magic)))) != magic {
		return errors.Join(d.err, errors.New("it does not begin with GGUF"))
	}
	f.Version = d.uint32()
	switch {
	case d.err != nil:
		return d.err
	case f.Version&0xffff == 0 && bits.ReverseBytes32(f.Version) <= version:
		return errors.New("it is big-endian; only little-endian files are read")
	case f.Version != 2 && f.Version != version:
		return fmt.Errorf("version %d is not known (2 and 3 are)", f.Version)
	}
	tensors, keys := d.uint64(), d.uint64()
	if d.err != nil {
		return d.err
	}
	if err := f.readMetadata(d, keys); err != nil {
		return err
	}
	var err error
	if f.Alignment, err = alignmentOf(f.Get(alignmentKey)); err != nil {
		return err
	}
	if err := f.readTensors(d, tensors); err != nil {
		return err
	}
	f.Data = alignUp(d.pos, f.Alignment)
	for i := range f.Tensors {
		if err := f.place(&f.Tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) readMetadata(d *decoder, n uint64) error {
	const least = 8 + 4 + 1 // bytes of a key, its type and value
	if n > uint64(d.left)/least {
		return d.tooLong("%d keys", n)
	}
	seen := map[string]bool{}
	for range n {
		at := d.pos
		key := d.string()
		typ := d.uint32()
		switch {
		case d.err != nil:
			return fmt.Errorf("key at offset %d: %w", at, d.err)
		case key == "" || len(key) > maxKey:
			return fmt.Errorf("key at offset %d has %d bytes", at, len(key))
		case seen[key]:
			return fmt.Errorf("key %s exists twice", short(key))
		}
		seen[key] = true
		v, err := d.value(typ, 0)
		if err != nil {
			return fmt.Errorf("key %s: %w", short(key), err)
		}
		f.Metadata = append(f.Metadata, KeyValue{key, v})
	}
	return nil
}

func (f *File) readTensors(d *decoder, n uint64) error {
	const least = 8 + 1 + 4 + 4 + 8 // bytes of an info
	if n > uint64(d.left)/least {
		return d.tooLong("%d tensors", n)
	}
	for i := range int(n) {
		at := d.pos
		var t Tensor
		if err := t.read(d); err != nil {
			return fmt.Errorf("tensor info at offset %d: %w", at, err)
		}
		if _, ok := f.byName[t.Name]; ok {
			return fmt.Errorf("tensor %s exists twice", short(t.Name))
		}
		f.byName[t.Name] = i
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}

func (t *Tensor) read(d *decoder) error {
	t.Name = d.string()
	dims := d.uint32()
	if dims > maxDims {
		return errors.Join(d.err, fmt.Errorf("tensor %s: %d dimensions, more than %d", short(t.Name), dims, maxDims))
	}
	t.Shape = make([]int64, dims)
	for i := range t.Shape {
		t.Shape[len(t.Shape)-1-i] = int64(min(d.uint64(), math.MaxInt64))
	}
	t.Type = Type(d.uint32())
	t.Offset = int64(min(d.uint64(), math.MaxInt64))
	if d.err != nil {
		return d.err
	}
	return t.check()
}

// place checks the place of a tensor's content.
func (f *File) place(t *Tensor) error {
	switch {
	case t.Offset%f.Alignment != 0:
		return fmt.Errorf("tensor %s: its offset %d is no multiple of the alignment, %d", short(t.Name), t.Offset, f.Alignment)
	case f.Data > f.Size || t.Offset > f.Size-f.Data || t.Bytes() > f.Size-f.Data-t.Offset:
		return fmt.Errorf("tensor %s: %d bytes at offset %d of the data, which begins at %d, pass the end of the file (%d bytes)",
			short(t.Name), t.Bytes(), t.Offset, f.Data, f.Size)
	}
	return nil
}

// decoder reads the head of a file. After an error it returns zeros.
type decoder struct {
	r    io.Reader
	pos  int64
	left int64 // bytes that may still be read
	cut  bool  // the file is longer than that
	err  error
}

// tooLong is the error of an item that exceeds the file.
func (d *decoder) tooLong(format string, args ...any) error {
	if d.err != nil {
		return d.err
	}
	what := fmt.Sprintf(format, args...)
	if d.cut {
		return fmt.Errorf("%s at offset %d, though at most %d MiB may stand before the data", what, d.pos, MaxHead>>20)
	}
	return fmt.Errorf("%s at offset %d, but only %d bytes follow", what, d.pos, d.left)
}

// bytes reads n bytes. It is an error if fewer are left.
func (d *decoder) bytes(n int64) []byte {
	if d.err == nil && n > d.left {
		d.err = d.tooLong("%d bytes", n)
	}
	if d.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		d.err = fmt.Errorf("at offset %d: %w", d.pos, err)
		return nil
	}
	d.pos += n
	d.left -= n
	return b
}

func (d *decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) string() string {
	n := d.uint64()
	if n > uint64(d.left) {
		d.err = d.tooLong("a string of %d bytes", n)
		return ""
	}
	return string(d.bytes(int64(n)))
}

// value reads a value of a type. depth is the number of arrays around it.
func (d *decoder) value(typ uint32, depth int) (any, error) {
	var v any
	switch typ {
	case typeUint8:
		v = number[uint8](d)
	case typeInt8:
		v = number[int8](d)
	case typeUint16:
		v = number[uint16](d)
	case typeInt16:
		v = number[int16](d)
	case typeUint32:
		v = number[uint32](d)
	case typeInt32:
		v = number[int32](d)
	case typeFloat32:
		v = number[float32](d)
	case typeBool:
		b := d.bools(1)
		v = len(b) > 0 && b[0]
	case typeString:
		v = d.string()
	case typeArray:
		return d.array(depth)
	case typeUint64:
		v = number[uint64](d)
	case typeInt64:
		v = number[int64](d)
	case typeFloat64:
		v = number[float64](d)
	default:
		return nil, fmt.Errorf("unknown type %d of a value", typ)
	}
	return v, d.err
}

// array reads an array. depth is the number of arrays around it.
func (d *decoder) array(depth int) (any, error) {
	typ, n := d.uint32(), d.uint64()
	if d.err != nil {
		return nil, d.err
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("arrays are nested more than %d deep", maxDepth)
	}
	var least uint64 // bytes of an element
	switch {
	case typ == typeString:
		least = 8
	case typ == typeArray:
		least = 4 + 8
	case int(typ) < len(width):
		least = uint64(width[typ])
	default:
		return nil, fmt.Errorf("unknown type %d of an array", typ)
	}
	if n > uint64(d.left)/least {
		return nil, d.tooLong("an array of %d elements", n)
	}
	var v any
	switch typ {
	case typeUint8:
		v = numbers[uint8](d, n)
	case typeInt8:
		v = numbers[int8](d, n)
	case typeUint16:
		v = numbers[uint16](d, n)
	case typeInt16:
		v = numbers[int16](d, n)
	case typeUint32:
		v = numbers[uint32](d, n)
	case typeInt32:
		v = numbers[int32](d, n)
	case typeFloat32:
		v = numbers[float32](d, n)
	case typeBool:
		v = d.bools(n)
	case typeString:
		s := make([]string, n)
		for i := range s {
			if s[i] = d.string(); d.err != nil {
				return nil, d.err
			}
		}
		v = s
	case typeArray:
		a := make([]any, n)
		for i := range a {
			var err error
			if a[i], err = d.array(depth + 1); err != nil {
				return nil, err
			}
		}
		v = a
	case typeUint64:
		v = numbers[uint64](d, n)
	case typeInt64:
		v = numbers[int64](d, n)
	case typeFloat64:
		v = numbers[float64](d, n)
	}
	return v, d.err
}

// numbers reads n numbers. The caller has checked that enough bytes are left.
func numbers[T any](d *decoder, n uint64) []T {
	v := make([]T, n)
	if b := d.bytes(int64(binary.Size(v))); d.err == nil {
		_, d.err = binary.Decode(b, binary.LittleEndian, v)
	}
	return v
}

func number[T any](d *decoder) T { return numbers[T](d, 1)[0] }

func (d *decoder) bools(n uint64) []bool {
	at := d.pos
	v := make([]bool, n)
	for i, b := range d.bytes(int64(n)) {
		if b > 1 {
			d.err = fmt.Errorf("a bool at offset %d is %d", at+int64(i), b)
			return nil
		}
		v[i] = b == 1
	}
	return v
}
