package modelfile

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxStructure bounds what of a file is kept in memory: everything but the
	// contents of tensors.
	maxStructure = 256 << 20
	// smallPiece is the size up to which a tensor's content is kept in memory
	// rather than read again later.
	smallPiece = 4 << 10
	windowSize = 16 << 10
)

// ErrFormat is wrapped by every error about bytes that are no ONNX model.
var ErrFormat = errors.New("not a valid ONNX model")

// cutter separates the structure of a model file from the contents of its
// tensors.
type cutter struct {
	window
	pieces    []piece
	structure int // bytes kept so far
}

// cut reads the model file behind r and returns its structure, with payload
// numbers in place of tensor contents, and the pieces these numbers name.
func cut(r io.ReaderAt, size int64) ([]byte, []piece, error) {
	c := &cutter{window: window{r: r, size: size}}
	out, err := c.message(nil, modelMessage, "model", 0, size, 0)
	if err != nil {
		return nil, nil, err
	}
	return out, c.pieces, nil
}

func (c *cutter) errorf(pos int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at offset %d", ErrFormat, fmt.Sprintf(format, args...), pos)
}

// message appends the structure of the message in [pos, end) to out. The name
// is that of the field which holds it.
func (c *cutter) message(out []byte, m *message, name string, pos, end int64, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, c.errorf(pos, "%s is nested deeper than %d messages", name, maxDepth)
	}
	first := len(c.pieces) // a tensor's pieces begin here
	for pos < end {
		start := pos
		num, typ, next, err := c.tag(pos, end, name)
		if err != nil {
			return nil, err
		}
		pos = next
		if m.tensor {
			if num == fieldPayload {
				return nil, c.errorf(start, "%s uses field number %d, which this program reserves", name, num)
			}
			after, taken, err := c.content(num, typ, start, pos, end, name, first)
			if err != nil {
				return nil, err
			}
			if taken {
				pos = after
				continue
			}
		}
		if typ != protowire.BytesType {
			if pos, err = c.skip(num, typ, pos, end, name); err != nil {
				return nil, err
			}
			if out, err = c.keep(out, start, pos); err != nil {
				return nil, err
			}
			continue
		}
		field, ok := m.fields[num]
		what := field.name
		if !ok {
			what = fmt.Sprintf("field %d of %s", num, name)
		}
		n, body, err := c.length(pos, end, what)
		if err != nil {
			return nil, err
		}
		pos = body + n
		if !ok {
			if out, err = c.keep(out, start, pos); err != nil {
				return nil, err
			}
			continue
		}
		inner, err := c.message(nil, field.msg, what, body, pos, depth+1)
		if err != nil {
			return nil, err
		}
		out = protowire.AppendTag(out, num, protowire.BytesType)
		out = protowire.AppendBytes(out, inner)
	}
	for i := first; m.tensor && i < len(c.pieces); i++ {
		out = protowire.AppendTag(out, fieldPayload, protowire.VarintType)
		out = protowire.AppendVarint(out, uint64(i))
	}
	return out, nil
}

// keep appends the file's bytes [start, end) to out.
func (c *cutter) keep(out []byte, start, end int64) ([]byte, error) {
	n := int(end - start)
	if c.structure += n; c.structure > maxStructure {
		return nil, c.errorf(start, "more than %d MiB outside of tensors", maxStructure>>20)
	}
	at := len(out)
	out = append(out, make([]byte, n)...)
	return out, c.copy(out[at:], start)
}

// content cuts the field of a tensor whose tag lies at start and whose value
// begins at pos, if it holds content. It returns the offset behind the field.
func (c *cutter) content(num protowire.Number, typ protowire.Type, start, pos, end int64, name string, first int) (int64, bool, error) {
	coding, ok := codings[num]
	if !ok {
		return 0, false, nil
	}
	if typ == coding.single && num != fieldRawData {
		next, err := c.skip(num, typ, pos, end, name)
		if err != nil {
			return 0, false, err
		}
		c.addSingle(num, start, next, first)
		return next, true, nil
	}
	if typ != protowire.BytesType {
		return 0, false, nil
	}
	n, body, err := c.length(pos, end, coding.name+" of "+name)
	if err != nil {
		return 0, false, err
	}
	p := piece{field: num, off: body, n: n}
	switch {
	case coding.width > 0:
		if n%coding.width != 0 {
			return 0, false, c.errorf(body, "%s of %s has %d bytes, no multiple of %d", coding.name, name, n, coding.width)
		}
		p.count = n / coding.width
	default:
		if err := c.countVarints(&p, name); err != nil {
			return 0, false, err
		}
	}
	if n <= smallPiece {
		p.data = make([]byte, n)
		if err := c.copy(p.data, body); err != nil {
			return 0, false, err
		}
	}
	if len(c.pieces) == math.MaxInt32 {
		return 0, false, c.errorf(body, "too many tensors")
	}
	c.pieces = append(c.pieces, p)
	return body + n, true, nil
}

// addSingle notes one element that was not packed with its neighbours. A run
// of them is one piece.
func (c *cutter) addSingle(num protowire.Number, start, next int64, first int) {
	if k := len(c.pieces) - 1; k >= first {
		if last := &c.pieces[k]; last.tagged && last.field == num && last.off+last.n == start {
			last.mark(start)
			last.n = next - last.off
			return
		}
	}
	p := piece{field: num, off: start, n: next - start, tagged: true}
	p.mark(start)
	c.pieces = append(c.pieces, p)
}

// countVarints counts the elements of a packed field and remembers where some
// of them begin.
func (c *cutter) countVarints(p *piece, name string) error {
	for pos, end := p.off, p.off+p.n; pos < end; {
		b, err := c.peek(pos, end)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			_, n := protowire.ConsumeVarint(b)
			if n < 0 {
				if int64(len(b)) < end-pos && len(b) < 10 {
					break // the window ends inside of it
				}
				return c.errorf(pos, "broken number in %s of %s", codings[p.field].name, name)
			}
			p.mark(pos)
			b, pos = b[n:], pos+int64(n)
		}
	}
	return nil
}

// tag reads a field's tag.
func (c *cutter) tag(pos, end int64, name string) (protowire.Number, protowire.Type, int64, error) {
	b, err := c.peek(pos, end)
	if err != nil {
		return 0, 0, 0, err
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ > protowire.Fixed32Type {
		return 0, 0, 0, c.errorf(pos, "%s holds no protobuf field", name)
	}
	if typ == protowire.EndGroupType {
		return 0, 0, 0, c.errorf(pos, "%s ends a group that was not begun", name)
	}
	return num, typ, pos + int64(n), nil
}

// length reads the length prefix of a field's value and checks it.
func (c *cutter) length(pos, end int64, what string) (n, body int64, err error) {
	b, err := c.peek(pos, end)
	if err != nil {
		return 0, 0, err
	}
	v, k := protowire.ConsumeVarint(b)
	if k < 0 {
		return 0, 0, c.errorf(pos, "%s: the length is cut off", what)
	}
	body = pos + int64(k)
	if v > uint64(end-body) {
		return 0, 0, c.errorf(pos, "%s: length %d, but only %d bytes are left (truncated file?)", what, v, end-body)
	}
	return int64(v), body, nil
}

// skip returns the offset behind a value that has no length prefix, or behind
// a length-prefixed value inside a group.
func (c *cutter) skip(num protowire.Number, typ protowire.Type, pos, end int64, name string) (int64, error) {
	open := []protowire.Number{} // groups
	for {
		switch typ {
		case protowire.VarintType:
			b, err := c.peek(pos, end)
			if err != nil {
				return 0, err
			}
			_, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, c.errorf(pos, "broken number in field %d of %s", num, name)
			}
			pos += int64(n)
		case protowire.Fixed32Type:
			pos += 4
		case protowire.Fixed64Type:
			pos += 8
		case protowire.BytesType:
			n, body, err := c.length(pos, end, fmt.Sprintf("field %d of %s", num, name))
			if err != nil {
				return 0, err
			}
			pos = body + n
		case protowire.StartGroupType:
			if open = append(open, num); len(open) > maxDepth {
				return 0, c.errorf(pos, "groups in %s are nested deeper than %d", name, maxDepth)
			}
		case protowire.EndGroupType:
			if open[len(open)-1] != num {
				return 0, c.errorf(pos, "group %d of %s ends as group %d", open[len(open)-1], name, num)
			}
			open = open[:len(open)-1]
		}
		if pos > end {
			return 0, c.errorf(pos, "field %d of %s is cut off (truncated file?)", num, name)
		}
		if len(open) == 0 {
			return pos, nil
		}
		b, err := c.peek(pos, end)
		if err != nil {
			return 0, err
		}
		var n int
		if num, typ, n = protowire.ConsumeTag(b); n < 0 || typ > protowire.Fixed32Type {
			return 0, c.errorf(pos, "group %d of %s does not end", open[0], name)
		}
		pos += int64(n)
	}
}

// window reads a file through one small buffer.
type window struct {
	r    io.ReaderAt
	size int64
	buf  []byte
	off  int64 // of buf[0] in the file
}

// peek returns bytes from pos on: at least ten, or all up to end.
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

// readFull reads all of dst; the file is known to have been long enough.
func readFull(r io.ReaderAt, dst []byte, off int64) error {
	if n, err := r.ReadAt(dst, off); n < len(dst) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %d bytes at offset %d: %w", len(dst), off, err)
	}
	return nil
}
