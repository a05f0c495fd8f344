package npy

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/regularfile"
)

// Array is an array that is being read, from its first element to its last.
type Array struct {
	Name    string  // name of the .npz member or of the file, without .npy
	Type    string  // kind and bytes of an element: f2 f4 f8, i1 … i8, u1 … u8, b1, c8 c16
	Shape   []int64 // empty for a scalar
	Fortran bool    // the first axis varies fastest, else the last one

	r       io.Reader
	where   string // the file, and the member of an archive
	member  bool   // r is a member of an archive
	size    int    // bytes of an element
	n, left int64  // elements: all, and not yet read
	swap    bool   // elements are big-endian
	raw     []byte
}

// Len returns the number of elements.
func (a *Array) Len() int64 { return a.n }

// NewArray reads the header of an .npy stream.
func NewArray(r io.Reader, name string) (*Array, error) {
	a, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	a.Name, a.r = name, r
	return a, nil
}

// File is an .npy or .npz file. Its arrays can be read in any order, and side by side.
type File struct {
	path    string
	f       *os.File
	size    int64
	members []*zip.File // nil for an .npy file
}

// Open opens an .npy or .npz file. The content decides which of the two it is.
func Open(path string) (*File, error) {
	f, size, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, msg.Cause(err))
	}
	if size == 0 {
		f.Close()
		return nil, fmt.Errorf("%s: %w: the file is empty; write it with numpy.save or numpy.savez", path, ErrFormat)
	}
	file := &File{path: path, f: f, size: size}
	if err := file.list(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return file, nil
}

// list finds the members of a zip archive.
func (f *File) list() error {
	var start [4]byte
	f.f.ReadAt(start[:], 0) // a shorter file is no archive
	if s := string(start[:]); s != "PK\x03\x04" && s != "PK\x05\x06" {
		return nil
	}
	z, err := zip.NewReader(f.f, f.size)
	if err != nil {
		return err
	}
	f.members = slices.Grow(z.File, 1) // not nil
	return checkOverlap(z)
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// Len returns the number of arrays.
func (f *File) Len() int {
	if f.members == nil {
		return 1
	}
	return len(f.members)
}

// Array reads the header of array i.
func (f *File) Array(i int) (*Array, error) {
	where, name := f.path, baseName(f.path)
	var r io.Reader = io.NewSectionReader(f.f, 0, f.size)
	if f.members != nil {
		member := f.members[i]
		where, name = f.path+": "+member.Name, strings.TrimSuffix(member.Name, ".npy")
		var err error
		if r, err = member.Open(); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", where, ErrFormat, err)
		}
	}
	a, err := NewArray(bufio.NewReaderSize(r, 1<<16), name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	a.where, a.member = where, f.members != nil
	return a, nil
}

// Each calls do with every array of an .npy or .npz file in turn. do must read the whole
// array before it returns.
func Each(path string, do func(*Array) error) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range f.Len() {
		a, err := f.Array(i)
		if err != nil {
			return err
		}
		if err := do(a); err != nil {
			return fmt.Errorf("%s: %w", a.where, err)
		}
		if err := a.end(); err != nil {
			return err
		}
	}
	return nil
}

// end checks that a member of an archive ends with its last element. Reading to the end also
// checks its checksum.
func (a *Array) end() error {
	if !a.member {
		return nil
	}
	switch n, err := io.ReadFull(a.r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%s: %w: extra bytes after the elements", a.where, ErrFormat)
	case err != io.EOF:
		return fmt.Errorf("%s: %w: %w", a.where, ErrFormat, err)
	}
	return nil
}

// checkOverlap refuses members that share bytes: with them a small file can expand to any
// amount of data.
func checkOverlap(z *zip.Reader) error {
	type span struct{ from, to int64 }
	var spans []span
	for _, member := range z.File {
		from, err := member.DataOffset()
		if err != nil {
			return err
		}
		spans = append(spans, span{from, from + int64(member.CompressedSize64)})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for i := range spans {
		if i > 0 && spans[i].from < spans[i-1].to {
			return errors.New("its members overlap")
		}
	}
	return nil
}

func baseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".npy") }

// next returns the little-endian bytes of the next elements, at most limit of them, and io.EOF after
// the last.
func (a *Array) next(limit int) ([]byte, error) {
	n := min(int64(limit), a.left)
	if n == 0 {
		return nil, io.EOF
	}
	a.raw = slices.Grow(a.raw[:0], int(n)*a.size)[:int(n)*a.size]
	if _, err := io.ReadFull(a.r, a.raw); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: it has fewer than its %d elements", ErrFormat, a.n)
		}
		return nil, err
	}
	a.left -= n
	if a.swap {
		width := a.size
		if a.Type[0] == 'c' {
			width /= 2
		}
		for word := range slices.Chunk(a.raw, width) {
			slices.Reverse(word)
		}
	}
	return a.raw, nil
}

// ReadFloats fills dst with the next elements in file order, rounded to float32. At the end
// it returns fewer, then io.EOF. Complex elements are an error.
func (a *Array) ReadFloats(dst []float32) (n int, err error) {
	if a.Type[0] == 'c' {
		return 0, fmt.Errorf("complex elements are not supported")
	}
	for len(dst) > 0 {
		raw, err := a.next(min(len(dst), 1<<14))
		if err == io.EOF && n > 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		k := len(raw) / a.size
		a.toFloats(dst[:k], raw)
		dst, n = dst[k:], n+k
	}
	return n, nil
}

var floatTypes = map[string]dtype.DType{"f2": dtype.Float16, "f4": dtype.Float32, "f8": dtype.Float64}

func (a *Array) toFloats(dst []float32, raw []byte) {
	if t, ok := floatTypes[a.Type]; ok {
		t.Decode(dst, raw)
		return
	}
	signed := a.Type[0] == 'i'
	for i := range dst {
		v := uint64(0)
		for j := a.size - 1; j >= 0; j-- {
			v = v<<8 | uint64(raw[i*a.size+j])
		}
		if signed {
			shift := 64 - 8*a.size
			dst[i] = float32(int64(v<<shift) >> shift)
		} else {
			dst[i] = float32(v)
		}
	}
}

// ReadAll returns all elements as little-endian bytes in C order. More than limit bytes are
// an error.
func (a *Array) ReadAll(limit int64) ([]byte, error) {
	if a.left != a.n {
		return nil, errors.New("some elements were read before")
	}
	if a.n > limit/int64(a.size) {
		return nil, fmt.Errorf("its %d elements of %d bytes are more than %d bytes", a.n, a.size, limit)
	}
	var all []byte // grows as elements are read: the header may claim any number
	for {
		raw, err := a.next(1 << 16)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		all = append(all, raw...)
	}
	if a.Fortran && len(a.Shape) > 1 {
		all = a.transposed(all)
	}
	return all, nil
}

// ReadRows returns the next n rows, slices along the first axis, as little-endian bytes in C
// order; io.EOF after the last. More than limit bytes are an error. An array in Fortran order
// is read as a whole, which must be within the limit too.
func (a *Array) ReadRows(n, limit int64) ([]byte, error) {
	if len(a.Shape) == 0 {
		return nil, errors.New("a scalar has no rows")
	}
	row := a.n / max(a.Shape[0], 1)
	if row > 0 && n > limit/int64(a.size)/row {
		return nil, fmt.Errorf("%w: %d rows of %d elements are more than %d bytes", ErrFormat, n, row, limit)
	}
	if a.Fortran && len(a.Shape) > 1 && a.left > 0 {
		all, err := a.ReadAll(limit)
		if err != nil {
			return nil, err
		}
		a.r, a.Fortran, a.left = bytes.NewReader(all), false, a.n
		a.swap = false
	}
	rows := make([]byte, 0, min(n*row*int64(a.size), 1<<20)) // grows as elements are read
	for left := n * row; left > 0; {
		raw, err := a.next(int(min(left, 1<<16)))
		if err != nil {
			return nil, err
		}
		rows, left = append(rows, raw...), left-int64(len(raw)/a.size)
	}
	return rows, nil
}

// transposed reorders elements from Fortran order to C order.
func (a *Array) transposed(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	at := make([]int64, len(a.Shape))
	for range a.n {
		off, stride := int64(0), int64(a.size)
		for axis, n := range a.Shape {
			off += at[axis] * stride
			stride *= n
		}
		out = append(out, raw[off:off+int64(a.size)]...)
		for axis := len(at) - 1; axis >= 0; axis-- {
			if at[axis]++; at[axis] < a.Shape[axis] {
				break
			}
			at[axis] = 0
		}
	}
	return out
}

// Channels returns the number of channels along an axis and their step in the file: element i belongs
// to channel i/step % channels. A negative axis counts from the end.
func (a *Array) Channels(axis int) (channels, step int64, err error) {
	given := axis
	if axis < 0 {
		axis += len(a.Shape)
	}
	if axis < 0 || axis >= len(a.Shape) {
		return 0, 0, fmt.Errorf("there is no axis %d: the shape is %v", given, a.Shape)
	}
	faster := a.Shape[axis+1:]
	if a.Fortran {
		faster = a.Shape[:axis]
	}
	step = 1
	if a.n > 0 {
		for _, n := range faster {
			step *= n
		}
	}
	return a.Shape[axis], step, nil
}
