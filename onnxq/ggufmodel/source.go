package ggufmodel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/kernels"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/onnxq"
	"onnxquant/rules"
)

// WeightsFrom describes what ReadWeights read.
type WeightsFrom struct {
	Tensors []string // of the model, which now have their contents from the file
	Of      int      // number of float tensors of the model
	Used    int      // tensors of the file
	Unused  []string // tensors of the file that the model lacks

	Coded   map[string]int // weights with codes that a conversion can keep, by what wrote them
	Decoded map[string]int // weights with codes that it cannot keep, by the reason
}

// ReadWeights replaces the contents of float tensors of the model by tensors of the GGUF file at path,
// with the same name or the name given by names. Plans and conversions of the model then use these
// contents.
//
// Shapes must be as NewPlan would write them: the reduction axis is last, so MatMul's [K,N] is [N,K]
// in the file. Values are decoded and rounded to the tensor's type in the model when they are read,
// piece by piece. The file stays open until the model is closed.
//
// It fails if the file has none of the model's tensors, or has one with a wrong shape or type.
func ReadWeights(m *onnxq.Model, path string, names *rules.Names) (*WeightsFrom, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	r, size, err := m.Graph().File.Attach(path)
	if err != nil {
		return nil, err
	}
	f, err := gguf.Read(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := names.Unused(convert.TensorNames(m.Graph())); err != nil {
		return nil, err
	}
	w := &WeightsFrom{}
	taken := map[*gguf.Tensor]bool{}
	for _, v := range m.Graph().Values {
		if !dtype.DType(v.Tensor.GetDataType()).Float() {
			continue
		}
		w.Of++
		name, ok := names.For(v.Path)
		t := f.Tensor(name)
		if !ok || t == nil {
			continue
		}
		s, err := newSource(f, t, m.Graph(), v)
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", path, msg.Quote(t.Name), err)
		}
		if err := m.Graph().File.Replace(v.Tensor, s); err != nil {
			return nil, err
		}
		taken[t] = true
		w.Tensors = append(w.Tensors, v.Path)
	}
	for i := range f.Tensors {
		if t := &f.Tensors[i]; !taken[t] {
			w.Unused = append(w.Unused, t.Name)
		}
	}
	w.Used = len(taken)
	if len(w.Tensors) == 0 {
		return nil, fmt.Errorf("%s: none of its %d tensors is called like one of the model; a file of names tells which is which", path, len(f.Tensors))
	}
	return w, nil
}

// source reads a tensor of a GGUF file as the content of a tensor of the model.
type source struct {
	layout
	name    string
	content interface {
		ReadAt(b []byte, off int64) (int, error)
	}
	dtype        dtype.DType
	size         int64 // bytes per element in the model
	block, bytes int64 // elements and bytes per block in the file
	encoding     *ggml.Encoding
	verbatim     bool // the same type in model and file: copy the bytes
}

func newSource(f *gguf.File, t *gguf.Tensor, x *graph.Graph, v *graph.Value) (*source, error) {
	s := &source{
		layout:  layoutOf(v.Tensor.GetDims(), reach.Of(x, v, v.Tensor.GetDims()).Leaves),
		name:    t.Name,
		content: f.Content(t),
		dtype:   dtype.DType(v.Tensor.GetDataType()),
	}
	s.size = s.dtype.Bits() / 8
	s.block, s.bytes = t.Type.Block()
	s.verbatim = floatTypes[s.dtype] == t.Type
	if !sameShape(t.Shape, s.shape) {
		return nil, fmt.Errorf("it has the shape %v; the model's %s of shape %v wants %v", t.Shape, msg.Quote(v.Path), v.Tensor.GetDims(), s.shape)
	}
	if t.Type == gguf.F64 {
		s.encoding = float64Encoding
		return s, nil
	}
	var ok bool
	if s.encoding, ok = ggml.LookupType(uint32(t.Type)); !ok {
		return nil, fmt.Errorf("its type, %v, cannot be decoded", t.Type)
	}
	return s, nil
}

// float64Encoding decodes F64, for which package ggml has no encoding.
var float64Encoding = &ggml.Encoding{Name: "F64", Type: uint32(gguf.F64), Elements: 1, Bytes: 8, Decode: dtype.Float64.Decode}

// ReadAt implements io.ReaderAt.
func (s *source) ReadAt(dst []byte, off int64) (int, error) {
	first, end := off/s.size, (off+int64(len(dst))-1)/s.size+1
	if end > s.rows()*s.k {
		return 0, errors.New("read beyond the tensor's end")
	}
	if off%s.size == 0 && int64(len(dst)) == (end-first)*s.size {
		if err := s.read(dst, first, end-first); err != nil {
			return 0, err
		}
		return len(dst), nil
	}
	whole := make([]byte, (end-first)*s.size)
	if err := s.read(whole, first, end-first); err != nil {
		return 0, err
	}
	return copy(dst, whole[off-first*s.size:]), nil
}

// ReadRows implements modelfile.RowReader. Adjacent rows of the model share blocks of the
// file, so it decodes each block once.
func (s *source) ReadRows(dst []byte, off, rows, n, stride int64) error {
	at, width := off/s.size, n/s.size
	o, row, col := at/(s.k*s.inner), at/s.inner%s.k, at%s.inner
	aligned := off%s.size == 0 && n%s.size == 0 && stride == s.inner*s.size
	if s.transposed() && aligned && row+rows <= s.k && col+width <= s.inner && o < s.outer {
		return s.panel(dst, o, row, rows, col, width)
	}
	for i := range rows {
		if _, err := s.ReadAt(dst[i*n:(i+1)*n], off+i*stride); err != nil {
			return err
		}
	}
	return nil
}

// read reads n elements in the order of the model, from element at on.
func (s *source) read(dst []byte, at, n int64) error {
	if !s.transposed() {
		return s.stretch(dst, at, n)
	}
	for n > 0 {
		o, row, col := at/(s.k*s.inner), at/s.inner%s.k, at%s.inner
		rows, width := int64(1), min(n, s.inner-col)
		if col == 0 && n >= s.inner {
			rows = min(n/s.inner, s.k-row)
		}
		count := rows * width
		if err := s.panel(dst[:count*s.size], o, row, rows, col, width); err != nil {
			return err
		}
		dst, at, n = dst[count*s.size:], at+count, n-count
	}
	return nil
}

// The size of a piece that is decoded at once: a multiple of all block sizes, by as many columns as
// share a cache line in the model.
const (
	sourceStep    = 4 << 10
	sourceColumns = 16
)

// sourceBuffers are the buffers of one reader.
type sourceBuffers struct {
	raw      []byte    // blocks of the file
	x        []float32 // decoded elements
	elements []byte    // the same in the model's type, of several columns
}

var sourcePool = sync.Pool{New: func() any { return new(sourceBuffers) }}

// stretch reads n elements in the order of the file, from element at on.
func (s *source) stretch(dst []byte, at, n int64) error {
	b := sourcePool.Get().(*sourceBuffers)
	defer sourcePool.Put(b)
	for n > 0 {
		count := min(n, (at/sourceStep+1)*sourceStep-at)
		decoded, skip, err := s.decode(b, at, count, 0)
		if err != nil {
			return err
		}
		copy(dst, decoded[skip*s.size:(skip+count)*s.size])
		dst, at, n = dst[count*s.size:], at+count, n-count
	}
	return nil
}

// panel reads rows × width elements, from [o, row, col] on, and transposes them.
func (s *source) panel(dst []byte, o, row, rows, col, width int64) error {
	b := sourcePool.Get().(*sourceBuffers)
	defer sourcePool.Put(b)
	for done := int64(0); done < rows; {
		count := min(rows-done, ((row+done)/sourceStep+1)*sourceStep-(row+done))
		for c := int64(0); c < width; c += sourceColumns {
			columns := min(sourceColumns, width-c)
			var from [sourceColumns][]byte
			for i := range columns {
				line := o*s.inner + col + c + i
				decoded, skip, err := s.decode(b, line*s.k+row+done, count, i)
				if err != nil {
					return err
				}
				from[i] = decoded[skip*s.size:]
			}
			s.scatter(dst[(done*width+c)*s.size:], from[:columns], count, width)
		}
		done += count
	}
	return nil
}

// scatter writes columns into rows of width elements.
func (s *source) scatter(dst []byte, from [][]byte, rows, width int64) {
	for r := range rows {
		to := dst[r*width*s.size:]
		for i, column := range from {
			switch s.size {
			case 2:
				copy(to[2*i:][:2], column[2*r:][:2])
			case 4:
				copy(to[4*i:][:4], column[4*r:][:4])
			default:
				copy(to[8*i:][:8], column[8*r:][:8])
			}
		}
	}
}

// decode decodes the blocks that contain n elements, in the order of the file from element
// at on, to the model's type. The first wanted element is decoded[skip]. Results for several
// places are valid at the same time.
func (s *source) decode(b *sourceBuffers, at, n, place int64) (decoded []byte, skip int64, err error) {
	first, end := at/s.block, (at+n-1)/s.block+1
	skip = at - first*s.block
	raw := buffer.Grow(&b.raw, (end-first)*s.bytes)
	if err := buffer.ReadFull(s.content, raw, first*s.bytes); err != nil {
		return nil, 0, err
	}
	count := (end - first) * s.block
	room := sourceStep + 2*s.block
	decoded = buffer.Grow(&b.elements, sourceColumns*room*s.size)[place*room*s.size:][:count*s.size]
	if s.verbatim {
		copy(decoded, raw)
		return decoded, skip, nil
	}
	x := buffer.Grow(&b.x, count)
	if err := s.encoding.Dequantize(x, raw, int(count), 1); err != nil {
		return nil, 0, fmt.Errorf("tensor %s: %w", msg.Quote(s.name), err)
	}
	if bad, ok := encodeFloats(decoded, x, s.dtype); !ok {
		return nil, 0, fmt.Errorf("tensor %s holds %v, which %v does not reach", msg.Quote(s.name), bad, s.dtype)
	}
	return decoded, skip, nil
}

// encodeFloats encodes elements as a float type. It is not ok if a finite element is too
// large for the type; that is returned.
func encodeFloats(dst []byte, x []float32, typ dtype.DType) (bad float32, ok bool) {
	if typ == dtype.Float32 || typ == dtype.Float64 {
		typ.Encode(dst, x)
		return 0, true
	}
	encoding, exponent := ggml.F16, uint16(0x7c00)
	if typ == dtype.BFloat16 {
		encoding, exponent = ggml.BF16, 0x7f80
	}
	encoding.Encode(dst, x, nil)
	for i, v := range x {
		if binary.LittleEndian.Uint16(dst[2*i:])&exponent == exponent && kernels.IsFinite(v) {
			return v, false
		}
	}
	return 0, true
}
