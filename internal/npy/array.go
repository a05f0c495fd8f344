package npy

import (
	"archive/zip"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/regularfile"
)

// Array is an array that is being read, from its first element to its last.
type Array struct {
	Name    string  // name of the .npz member or of the file, without .npy
	Type    string  // kind and bytes of an element: f2 f4 f8, i1 … i8, u1 … u8, b1, c8 c16
	Shape   []int64 // empty for a scalar
	Fortran bool    // the first axis varies fastest, else the last one

	r       io.Reader
	size    int   // bytes of an element
	n, left int64 // elements: all, and not yet read
	swap    bool  // elements are big-endian
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

// Each calls do with every array of an .npy or .npz file in turn. The content of the file
// decides which of the two it is. do must read the whole array before it returns.
func Each(path string, do func(*Array) error) error {
	f, size, err := regularfile.Open(path)
	if err != nil {
		var pathError *os.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	if start, _ := r.Peek(4); string(start) != "PK\x03\x04" && string(start) != "PK\x05\x06" {
		return each(r, path, baseName(path), do)
	}
	z, err := zip.NewReader(f, size)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	if err := checkOverlap(z); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	for _, member := range z.File {
		if err := eachMember(member, path, do); err != nil {
			return err
		}
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

func eachMember(member *zip.File, path string, do func(*Array) error) error {
	where := path + ": " + member.Name
	r, err := member.Open()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", where, ErrFormat, err)
	}
	defer r.Close()
	b := bufio.NewReaderSize(r, 1<<16)
	if err := each(b, where, strings.TrimSuffix(member.Name, ".npy"), do); err != nil {
		return err
	}
	switch _, err := b.ReadByte(); { // reading to the end also checks the checksum
	case err == nil:
		return fmt.Errorf("%s: %w: extra bytes after the elements", where, ErrFormat)
	case err != io.EOF:
		return fmt.Errorf("%s: %w: %w", where, ErrFormat, err)
	}
	return nil
}

func each(r io.Reader, where, name string, do func(*Array) error) error {
	a, err := NewArray(r, name)
	if err == nil {
		err = do(a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func baseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".npy") }

// next returns the little-endian bytes of the next elements, at most limit of them; io.EOF
// after the last.
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

// Channels returns the number of channels along an axis and their step in the file: element
// i belongs to channel i/step % channels. A negative axis counts from the last.
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
