package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
)

// MaxHeader is the largest header in bytes.
const MaxHeader = 100_000_000

// ErrFormat is wrapped by errors about a file that is not as the definition says.
var ErrFormat = errors.New("not a safetensors file")

// File is the header of a file.
type File struct {
	Tensors  []Tensor          // in the order of their contents
	Metadata map[string]string // of the header

	r      io.ReaderAt
	data   int64 // where the data begin
	byName map[string]int
}

// Tensor is a tensor of a file.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int64

	begin, end int64 // in the data
}

// Type is the type of elements, as the file writes it.
type Type string

// types are the known types.
var types = map[Type]struct {
	bits int64
	onnx dtype.DType
}{
	"F64": {64, dtype.Float64}, "F32": {32, dtype.Float32}, "F16": {16, dtype.Float16}, "BF16": {16, dtype.BFloat16},
	"F8_E4M3": {8, dtype.Float8E4M3FN}, "F8_E5M2": {8, dtype.Float8E5M2}, "F8_E8M0": {8, dtype.Float8E8M0}, "F4": {4, dtype.Float4E2M1},
	"I64": {64, dtype.Int64}, "I32": {32, dtype.Int32}, "I16": {16, dtype.Int16}, "I8": {8, dtype.Int8},
	"U64": {64, dtype.Uint64}, "U32": {32, dtype.Uint32}, "U16": {16, dtype.Uint16}, "U8": {8, dtype.Uint8}, "BOOL": {8, dtype.Bool},
}

// DType is the type in ONNX; 0 if it is not known.
func (t Type) DType() dtype.DType { return types[t].onnx }

// Read reads the header of a file of size bytes.
func Read(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, byName: map[string]int{}}
	if err := f.read(size); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return f, nil
}

func (f *File) read(size int64) error {
	var length [8]byte
	if _, err := f.r.ReadAt(length[:], 0); err != nil {
		return errors.New("it has no length of a header")
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader || int64(n) > size-8 {
		return fmt.Errorf("a header of %d bytes, in a file of %d", n, size)
	}
	header := make([]byte, n)
	if _, err := f.r.ReadAt(header, 8); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f.data = 8 + int64(n)
	if err := f.parse(header); err != nil {
		return err
	}
	return f.place(size - f.data)
}

// entry is a value of the header.
type entry struct {
	DType   *Type   `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

func (f *File) parse(header []byte) error {
	d := json.NewDecoder(bytes.NewReader(header))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return errors.New("the header is no JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		name := key.(string) // of an object
		if name == "__metadata__" {
			if err := d.Decode(&f.Metadata); err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("tensor %s: %w", strconv.Quote(name), err)
		}
		if _, ok := f.byName[name]; ok {
			return fmt.Errorf("tensor %s stands twice", strconv.Quote(name))
		}
		t, err := e.tensor(name)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", strconv.Quote(name), err)
		}
		f.byName[name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return nil
}

// tensor checks an entry.
func (e *entry) tensor(name string) (Tensor, error) {
	if e.DType == nil || e.Shape == nil || len(e.Offsets) != 2 {
		return Tensor{}, errors.New("want dtype, shape and data_offsets")
	}
	t := Tensor{name, *e.DType, e.Shape, e.Offsets[0], e.Offsets[1]}
	if t.begin < 0 || t.end < t.begin {
		return t, fmt.Errorf("offsets %d", e.Offsets)
	}
	known, ok := types[t.Type]
	if !ok {
		return t, nil // its content cannot be read
	}
	count := uint64(known.bits)
	for _, n := range t.Shape {
		if n < 0 {
			return t, fmt.Errorf("shape %d", t.Shape)
		}
		high, low := bits.Mul64(count, uint64(n))
		if high != 0 {
			return t, fmt.Errorf("shape %d is too large", t.Shape)
		}
		count = low
	}
	if count%8 != 0 || count/8 != uint64(t.end-t.begin) {
		return t, fmt.Errorf("%d bytes for shape %d of %s", t.end-t.begin, t.Shape, t.Type)
	}
	return t, nil
}

// place checks that contents lie one behind the other, up to the end of the data.
func (f *File) place(size int64) error {
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
	at := int64(0)
	for i, t := range f.Tensors {
		f.byName[t.Name] = i
		if t.begin != at {
			return fmt.Errorf("tensor %s begins at byte %d of the data, the one before ends at %d", strconv.Quote(t.Name), t.begin, at)
		}
		at = t.end
	}
	if at != size {
		return fmt.Errorf("the tensors have %d bytes, the file %d", at, size)
	}
	return nil
}

// Tensor returns the tensor of a name, or nil.
func (f *File) Tensor(name string) *Tensor {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Content returns the content of a tensor.
func (f *File) Content(t *Tensor) *io.SectionReader {
	return io.NewSectionReader(f.r, f.data+t.begin, t.end-t.begin)
}
