package modelfile

import (
	"bytes"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Layout is an encoded model with gaps where the contents of its tensors go.
type Layout struct {
	Size    int64   // of the whole file
	Offsets []int64 // of each payload; -1 if no tensor refers to it

	chunks []chunk
}

// chunk is either bytes of the structure or the gap for a payload.
type chunk struct {
	off, size int64
	bytes     []byte
	payload   int
}

// NewLayout encodes the structure m. A tensor whose content is written later has the
// number of one payload; sizes has the sizes of the payloads in bytes. The content
// goes to raw_data.
func NewLayout(m *onnxpb.ModelProto, sizes []int64) (*Layout, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := splicer{sizes: sizes}
	chunks, size, err := s.message(b, modelMessage)
	if err != nil {
		return nil, err
	}
	if chunks == nil && size > 0 {
		chunks = []chunk{{bytes: b, size: size}}
	}
	l := &Layout{Offsets: make([]int64, len(sizes)), chunks: chunks, Size: size}
	for i := range l.Offsets {
		l.Offsets[i] = -1
	}
	off := int64(0)
	for i := range l.chunks {
		c := &l.chunks[i]
		c.off = off
		off += c.size
		if c.bytes == nil {
			if l.Offsets[c.payload] >= 0 {
				return nil, fmt.Errorf("two tensors have payload %d", c.payload)
			}
			l.Offsets[c.payload] = c.off
		}
	}
	return l, nil
}

type splicer struct{ sizes []int64 }

// message replaces the payload numbers in an encoded message by gaps. It returns the
// chunks, or none if the message has no payload number, and the new size.
func (s *splicer) message(b []byte, m *message) ([]chunk, int64, error) {
	var chunks []chunk
	var size int64
	add := func(c ...chunk) {
		for _, c := range c {
			chunks = append(chunks, c)
			size += c.size
		}
	}
	done := 0 // bytes of b already in chunks
	flush := func(to int) {
		if to > done {
			add(chunk{bytes: b[done:to], size: int64(to - done)})
		}
	}
	after := -1 // position of the first field after raw_data, in order of field numbers
	for pos := 0; pos < len(b); {
		num, typ, n := protowire.ConsumeTag(b[pos:])
		start := pos
		if after < 0 && num > fieldRawData {
			after = start
		}
		pos += n
		vn := protowire.ConsumeFieldValue(num, typ, b[pos:])
		if n < 0 || vn < 0 {
			return nil, 0, fmt.Errorf("%w: broken structure", ErrFormat)
		}
		value := b[pos : pos+vn]
		pos += vn
		f := m.fields[num]
		switch {
		case m.tensor && num == fieldPayload && typ == protowire.VarintType:
			k, _ := protowire.ConsumeVarint(value)
			if k >= uint64(len(s.sizes)) {
				return nil, 0, fmt.Errorf("there is no payload %d", k)
			}
			flush(after)
			head := protowire.AppendTag(nil, fieldRawData, protowire.BytesType)
			head = protowire.AppendVarint(head, uint64(s.sizes[k]))
			add(chunk{bytes: head, size: int64(len(head))}, chunk{payload: int(k), size: s.sizes[k]})
			done = max(done, after)
			flush(start)
			done = pos
		case f != nil && f.msg != nil && typ == protowire.BytesType:
			_, k := protowire.ConsumeVarint(value)
			inner, isize, err := s.message(value[k:], f.msg)
			if err != nil {
				return nil, 0, err
			}
			if inner == nil {
				continue // unchanged
			}
			flush(start)
			head := protowire.AppendTag(nil, num, typ)
			head = protowire.AppendVarint(head, uint64(isize))
			add(chunk{bytes: head, size: int64(len(head))})
			add(inner...)
			done = pos
		}
	}
	if done == 0 {
		return nil, int64(len(b)), nil
	}
	flush(len(b))
	return chunks, size, nil
}

// WriteStructure writes everything but the payloads.
func (l *Layout) WriteStructure(w io.WriterAt) error {
	for _, c := range l.chunks {
		if c.bytes != nil {
			if _, err := w.WriteAt(c.bytes, c.off); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check reads a written model file. Its encoding must be valid. Everything but the payloads must equal
// the output of WriteStructure, and each payload must be the content of a tensor.
func (l *Layout) Check(r io.ReaderAt, size int64) error {
	if size != l.Size {
		return fmt.Errorf("the model file has %d bytes, %d were written", size, l.Size)
	}
	pieces, err := cut(r, size, nil)
	if err != nil {
		return err
	}
	sizes := make(map[int64]int64, len(pieces)) // offset → bytes of raw data
	for _, p := range pieces {
		if p.field == fieldRawData {
			sizes[p.off] = p.n
		}
	}
	buf := make([]byte, windowSize)
	for _, c := range l.chunks {
		if c.bytes == nil {
			if n, ok := sizes[c.off]; !ok || n != c.size {
				return fmt.Errorf("the %d bytes at offset %d differ from the tensor that was written there", c.size, c.off)
			}
			continue
		}
		for at := 0; at < len(c.bytes); {
			want := c.bytes[at:min(at+len(buf), len(c.bytes))]
			if err := readFull(r, buf[:len(want)], c.off+int64(at)); err != nil {
				return err
			}
			if !bytes.Equal(buf[:len(want)], want) {
				return fmt.Errorf("the structure near offset %d differs from what was written", c.off+int64(at))
			}
			at += len(want)
		}
	}
	return nil
}
