package modelfile

import (
	"fmt"
	"io"
	"os"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
)

// A RowReader reads rows of equal length that lie at equal distances, all at once
// where that is less work than one by one.
type RowReader interface {
	io.ReaderAt
	// ReadRows reads rows of n bytes each, the first at off and each stride behind
	// the one before, to dst, one after the other.
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

// Attach opens a file that contents of tensors are to come from. From then on it is
// one of the model's files: it counts in Size, Uses and Unchanged, and is closed with
// the model.
func (m *Model) Attach(name string) (r io.ReaderAt, size int64, err error) {
	f, err := regular(os.OpenFile(name, os.O_RDONLY|regularfile.Nonblock, 0))
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	m.attached = append(m.attached, f)
	return f, f.size, nil
}

// Replace lets the content of a tensor of the model come from r, as little-endian
// elements of its type, as many as it has.
func (m *Model) Replace(t *onnxpb.TensorProto, r io.ReaderAt) error {
	old, err := m.Payload(t)
	if err != nil {
		return err
	}
	p := &Payload{replaced: true}
	p.add(part{r, 0, old.Size()})
	m.payloads[t] = p
	return nil
}
