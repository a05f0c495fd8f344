package modelfile

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrFormat is wrapped by every error about an invalid encoding.
var ErrFormat = errors.New("not a valid ONNX model")

func errorf(pos int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at offset %d", ErrFormat, fmt.Sprintf(format, args...), pos)
}

// scanner reads protobuf's wire format. Its methods take an offset, the end of the enclosing message,
// and the name of the field for error messages.
type scanner struct{ in window }

// tag reads a field's tag in the message called name. It returns the offset after it.
func (s *scanner) tag(name string, pos, end int64) (protowire.Number, protowire.Type, int64, error) {
	b, err := s.in.peek(pos, end)
	if err != nil {
		return 0, 0, 0, err
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ > protowire.Fixed32Type {
		return 0, 0, 0, errorf(pos, "%s has an invalid protobuf field", name)
	}
	if typ == protowire.EndGroupType {
		return 0, 0, 0, errorf(pos, "%s ends a group that it did not begin", name)
	}
	return num, typ, pos + int64(n), nil
}

// varint reads a varint and returns the offset after it.
func (s *scanner) varint(at fmt.Stringer, pos, end int64) (uint64, int64, error) {
	b, err := s.in.peek(pos, end)
	if err != nil {
		return 0, 0, err
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, 0, errorf(pos, "invalid varint in %v", at)
	}
	return v, pos + int64(n), nil
}

// length reads and checks the length prefix of a field. It returns the offset after
// the prefix.
func (s *scanner) length(at fmt.Stringer, pos, end int64) (n, body int64, err error) {
	b, err := s.in.peek(pos, end)
	if err != nil {
		return 0, 0, err
	}
	v, k := protowire.ConsumeVarint(b)
	if k < 0 {
		return 0, 0, errorf(pos, "invalid length of %v", at)
	}
	body = pos + int64(k)
	if v > uint64(end-body) {
		return 0, 0, errorf(pos, "%v has length %d, but only %d bytes are left (truncated file?),", at, v, end-body)
	}
	return int64(v), body, nil
}

// skip returns the offset after the value of a field.
func (s *scanner) skip(at fmt.Stringer, num protowire.Number, typ protowire.Type, pos, end int64) (next int64, err error) {
	switch typ {
	case protowire.VarintType:
		_, next, err = s.varint(at, pos, end)
	case protowire.Fixed32Type:
		next = pos + 4
	case protowire.Fixed64Type:
		next = pos + 8
	case protowire.BytesType:
		n, body, err := s.length(at, pos, end)
		if err != nil {
			return 0, err
		}
		next = body + n
	case protowire.StartGroupType:
		next, err = s.skipGroup(at, num, pos, end)
	}
	if err == nil && next > end {
		err = errorf(pos, "%v is cut off (truncated file?)", at)
	}
	return next, err
}

// skipGroup returns the offset after a group whose fields begin at pos.
func (s *scanner) skipGroup(at fmt.Stringer, num protowire.Number, pos, end int64) (int64, error) {
	for open := []protowire.Number{num}; len(open) > 0; {
		b, err := s.in.peek(pos, end)
		if err != nil {
			return 0, err
		}
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ > protowire.Fixed32Type {
			return 0, errorf(pos, "%v is a group without an end", at)
		}
		pos += int64(n)
		switch typ {
		case protowire.StartGroupType:
			if open = append(open, num); len(open) > maxDepth {
				return 0, errorf(pos, "groups in %v are nested deeper than %d", at, maxDepth)
			}
		case protowire.EndGroupType:
			if innermost := open[len(open)-1]; innermost != num {
				return 0, errorf(pos, "group %d in %v ends as group %d", innermost, at, num)
			}
			open = open[:len(open)-1]
		default:
			if pos, err = s.skip(at, num, typ, pos, end); err != nil {
				return 0, err
			}
		}
	}
	return pos, nil
}

const windowSize = 16 << 10

// window reads a file through one small buffer.
type window struct {
	r    io.ReaderAt
	size int64
	buf  []byte
	off  int64 // of buf[0] in the file
}

// peek returns bytes from pos on: at least ten (the longest varint), or all up to end.
func (w *window) peek(pos, end int64) ([]byte, error) {
	want := min(10, end-pos)
	if pos < w.off || pos+want > w.off+int64(len(w.buf)) {
		if cap(w.buf) == 0 {
			w.buf = make([]byte, 0, windowSize)
		}
		n := min(windowSize, w.size-pos)
		w.buf, w.off = w.buf[:n], pos
		if err := readFull(w.r, w.buf, pos); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	b := w.buf[pos-w.off:]
	return b[:min(int64(len(b)), end-pos)], nil
}

// copy fills dst with the file's bytes from pos on.
func (w *window) copy(dst []byte, pos int64) error {
	if in := pos - w.off; in >= 0 && in+int64(len(dst)) <= int64(len(w.buf)) {
		copy(dst, w.buf[in:])
		return nil
	}
	return readFull(w.r, dst, pos)
}

// readFull fills dst. At the end of the file it returns an error: callers have checked
// its size before.
func readFull(r io.ReaderAt, dst []byte, off int64) error {
	if n, err := r.ReadAt(dst, off); n < len(dst) {
		if err == nil || err == io.EOF {
			err = fmt.Errorf("%d bytes at offset %d: %w", len(dst), off, io.ErrUnexpectedEOF)
		}
		return err
	}
	return nil
}
