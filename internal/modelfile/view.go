package modelfile

import (
	"bytes"
	"fmt"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// View returns a model with another structure, whose tensors have the given contents. If content
// returns nil, the tensor in p has raw data, which View cuts out of p as Open does. The view uses the
// files of m, so only m must be closed.
func (m *Model) View(p *onnxpb.ModelProto, content func(t *onnxpb.TensorProto) (*Payload, error)) (*Model, error) {
	v := *m
	v.Proto, v.payloads = p, map[*onnxpb.TensorProto]*Payload{}
	for where, t := range Tensors(p) {
		c, err := content(t)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrTensor, where, err)
		}
		if c == nil && dtype.DType(t.GetDataType()) != dtype.String {
			c, t.RawData = Computed(bytes.NewReader(t.RawData), int64(len(t.RawData))), nil
		}
		if t.RawData == nil || c.replaced {
			v.payloads[t] = c
		}
	}
	return &v, nil
}

// Computed returns a payload of size bytes that r computes.
func Computed(r io.ReaderAt, size int64) *Payload {
	p := &Payload{replaced: true}
	p.add(part{r, 0, size})
	return p
}
