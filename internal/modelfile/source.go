package modelfile

import (
	"fmt"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// A RowReader can read several rows of equal length and stride in one call.
type RowReader interface {
	io.ReaderAt
	// ReadRows reads rows of n bytes to dst without gaps. Row i begins at off +
	// i·stride.
	ReadRows(dst []byte, off, rows, n, stride int64) error
}

// ReadRows implements RowReader.
func (p *Payload) ReadRows(dst []byte, off, rows, n, stride int64) error {
	if len(p.parts) == 1 {
		if r, ok := p.parts[0].r.(RowReader); ok {
			return r.ReadRows(dst, p.parts[0].base+off, rows, n, stride)
		}
	}
	if n == stride {
		rows, n = 1, rows*n
	}
	for i := range rows {
		if err := readFull(p, dst[i*n:(i+1)*n], off+i*stride); err != nil {
			return err
		}
	}
	return nil
}

// Attach opens a file that Replace will read contents from. It becomes one of the
// model's files: Uses and Unchanged include it, and Close closes it.
func (m *Model) Attach(name string) (r io.ReaderAt, size int64, err error) {
	f, err := OpenFile(name)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	m.attached = append(m.attached, f)
	return f, f.Size, nil
}

// Replace makes r the content of a tensor of the model. r has all elements of the
// tensor, little-endian, in the type of the tensor.
func (m *Model) Replace(t *onnxpb.TensorProto, r io.ReaderAt) error {
	if _, err := m.Payload(t); err != nil {
		return err
	}
	n, err := dtype.Elements(t.GetDims())
	if err != nil {
		return err
	}
	p := &Payload{replaced: true}
	p.add(part{r, 0, dtype.DType(t.GetDataType()).Bytes(n)})
	m.payloads[t], t.RawData = p, nil
	return nil
}
