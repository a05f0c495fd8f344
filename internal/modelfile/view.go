package modelfile

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// View returns a model with another structure, whose tensors have the contents of tensors of
// m: t has that of original(t). If this is nil, t is new and holds its content as raw data.
// View cuts raw data out of p, as Open does. The view uses the files of m, so only m must be
// closed.
func (m *Model) View(p *onnxpb.ModelProto, original func(t *onnxpb.TensorProto) *onnxpb.TensorProto) (*Model, error) {
	v := *m
	v.Proto, v.payloads = p, map[*onnxpb.TensorProto]*Payload{}
	for _, t := range Tensors(p) {
		if old := original(t); old != nil {
			content, err := m.Payload(old)
			if err != nil {
				return nil, err
			}
			name := t.Name
			proto.Reset(t)
			proto.Merge(t, old)
			t.Name, v.payloads[t] = name, content
			continue
		}
		if dtype.DType(t.GetDataType()) == dtype.String {
			v.payloads[t] = nil
			continue
		}
		content := &Payload{}
		content.add(part{bytes.NewReader(t.RawData), 0, int64(len(t.RawData))})
		v.payloads[t], t.RawData = content, nil
	}
	return &v, nil
}
