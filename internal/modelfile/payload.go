package modelfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// ErrTensor is wrapped by every error about a tensor whose type, dimensions
// and content do not fit together.
var ErrTensor = errors.New("invalid tensor")

// Payload is the content of a tensor as little-endian bytes: elements in row-major order, sub-byte
// elements packed from the low bits up.
type Payload struct {
	size     int64
	parts    []part
	replaced bool // the content differs from the file's
}

// part is a stretch of a payload: size bytes read from r at base on.
type part struct {
	r          io.ReaderAt
	base, size int64
}

// Size returns the number of bytes.
func (p *Payload) Size() int64 { return p.size }

// ReadAt implements io.ReaderAt.
func (p *Payload) ReadAt(dst []byte, off int64) (int, error) {
	done := 0
	for _, s := range p.parts {
		if done == len(dst) {
			break
		}
		if off >= s.size {
			off -= s.size
			continue
		}
		n := min(int64(len(dst)-done), s.size-off)
		if err := readFull(s.r, dst[done:done+int(n)], s.base+off); err != nil {
			return done, err
		}
		done += int(n)
		off = 0
	}
	if done < len(dst) {
		return done, io.EOF
	}
	return done, nil
}

// Payload returns the content of a tensor of the model. Tensors of type STRING
// have none: their elements stay in the structure.
func (m *Model) Payload(t *onnxpb.TensorProto) (*Payload, error) {
	if p, ok := m.payloads[t]; ok {
		return p, nil
	}
	if t.GetRawData() != nil {
		p := &Payload{}
		p.add(part{bytes.NewReader(t.RawData), 0, int64(len(t.RawData))})
		return p, nil
	}
	return nil, fmt.Errorf("%w: tensor %q is not of this model", ErrTensor, t.GetName())
}

// Inline gives dst, a tensor of another structure, the content of src, a tensor of this model. Content
// in a typed field is copied as it is.
func (m *Model) Inline(dst, src *onnxpb.TensorProto) error {
	p, err := m.Payload(src)
	if err != nil {
		return err
	}
	if p == nil {
		return nil
	}
	if p.size == 0 {
		return nil
	}
	if src.RawData != nil && !p.replaced {
		dst.RawData = bytes.Clone(src.RawData)
		return nil
	}
	var wire []byte
	for _, k := range src.GetPayload() {
		piece := m.pieces[k]
		if p.replaced || piece.field == fieldRawData || piece.n == 0 {
			continue
		}
		b := make([]byte, piece.n)
		if err := readFull(m.file, b, piece.off); err != nil {
			return err
		}
		if !piece.tagged {
			wire = protowire.AppendTag(wire, piece.field, protowire.BytesType)
			wire = protowire.AppendVarint(wire, uint64(piece.n))
		}
		wire = append(wire, b...)
	}
	if wire == nil {
		dst.RawData = make([]byte, p.size)
		return readFull(p, dst.RawData, 0)
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(wire, dst)
}

// resolve checks a tensor of the file and finds its content. It returns nil if that is in the
// structure.
func (m *Model) resolve(t *onnxpb.TensorProto) (*Payload, error) {
	typ := dtype.DType(t.GetDataType())
	n, err := dtype.Elements(t.GetDims())
	if err != nil {
		return nil, err
	}
	if err := checkPlace(t); err != nil {
		return nil, err
	}
	if typ == dtype.String {
		if len(t.GetPayload()) > 0 || t.RawData != nil || int64(len(t.GetStringData())) != n {
			return nil, fmt.Errorf("%d strings, want %d (dims %v)", len(t.GetStringData()), n, t.GetDims())
		}
		return nil, nil
	}
	field, ok := typedFields[typ]
	if !ok {
		return nil, fmt.Errorf("data type %d is not known", t.GetDataType())
	}
	want := typ.Bytes(n)
	if t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		return m.external(t, want)
	}

	p, err := m.inFile(t, field)
	if err != nil {
		return nil, err
	}
	if p.size != want {
		return nil, fmt.Errorf("%d bytes of data, want %d (%v, dims %v)", p.size, want, typ, shortDims(t.GetDims()))
	}
	if t.RawData != nil {
		return nil, nil
	}
	return p, nil
}

// checkPlace checks where a tensor says that its content is.
func checkPlace(t *onnxpb.TensorProto) error {
	switch {
	case t.Segment != nil:
		return errors.New("it is a segment of a larger tensor, which no runtime reads")
	case t.DataLocation == nil && hasUnknownLocation(t):
		return errors.New("data_location is neither DEFAULT nor EXTERNAL")
	case t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL:
		return nil
	case len(t.GetPayload()) > 0 || t.RawData != nil || len(t.GetStringData()) > 0:
		return errors.New("it has external data and data of its own")
	case dtype.DType(t.GetDataType()) == dtype.String:
		return errors.New("strings cannot be external data")
	}
	return nil
}

// inFile finds the content of a tensor in the model file: raw_data, or the typed field.
func (m *Model) inFile(t *onnxpb.TensorProto, field protowire.Number) (*Payload, error) {
	typ := dtype.DType(t.GetDataType())
	var raw, typed Payload
	raw.size = int64(len(t.RawData)) // small ones are in the structure
	for _, k := range t.GetPayload() {
		switch piece := m.pieces[k]; piece.field {
		case fieldRawData:
			raw = Payload{} // if the field is repeated, the last one wins
			raw.add(m.part(piece, typ.Bits()))
		case field:
			if err := m.checkRange(piece, typ); err != nil {
				return nil, err
			}
			typed.add(m.part(piece, typ.Bits()))
		default:
			return nil, fmt.Errorf("its values are in %s, which is not for %v", codings[piece.field].name, typ)
		}
	}
	if len(t.GetStringData()) > 0 {
		return nil, fmt.Errorf("it has string_data, which is not for %v", typ)
	}
	switch {
	case typed.size == 0:
		return &raw, nil
	case raw.size > 0:
		return nil, fmt.Errorf("it has raw_data and %s", codings[field].name)
	case typ.Bits() == 6:
		return Computed(sixBits{&typed}, typ.Bytes(typed.size)), nil
	}
	return &typed, nil
}

func (p *Payload) add(s part) {
	if s.size > 0 {
		p.parts = append(p.parts, s)
		p.size += s.size
	}
}

// part gives a piece of the model file as little-endian elements.
func (m *Model) part(p *piece, bits int64) part {
	if p.direct() {
		return part{m.file, p.off, p.n}
	}
	elem := max(bits/8, 1)
	if width := codings[p.field].width; width > 0 {
		elem = width // COMPLEX64 takes two entries
	}
	return part{&decoder{m.file, p, elem}, 0, p.count * elem}
}

// checkRange refuses values in a typed field that the tensor's type does not
// have: they would lose bits without a word.
func (m *Model) checkRange(p *piece, typ dtype.DType) error {
	if codings[p.field].width > 0 || p.count == 0 {
		return nil
	}
	lo, hi := entries(typ)
	if p.lo >= lo && p.hi <= hi {
		return nil
	}
	d := decoder{m.file, p, 1}
	value, off, err := d.outside(lo, hi)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s holds %d at offset %d, which is no value of %v", codings[p.field].name, value, off, typ)
}

// hasUnknownLocation reports whether data_location was given a value that the
// enumeration does not have; protobuf keeps it among the unknown fields.
func hasUnknownLocation(t *onnxpb.TensorProto) bool {
	for b := t.ProtoReflect().GetUnknown(); len(b) > 0; {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return false
		}
		if num == fieldLocation {
			return true
		}
		b = b[n:]
	}
	return false
}

// shortDims keeps an error message to one line, whatever the rank.
func shortDims(dims []int64) any {
	if len(dims) > 8 {
		return fmt.Sprintf("%d dimensions", len(dims))
	}
	return dims
}
