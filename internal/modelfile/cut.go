package modelfile

import (
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// The structure is kept in memory, so its size is limited: encoded and decoded. Two
// bytes of the file may decode to a struct of hundreds of bytes.
const (
	maxStructure = 256 << 20 // bytes of the file outside of contents
	freeMemory   = 192 << 20 // bytes of memory that any model may take
	memoryRatio  = 20        // bytes of memory per byte of structure that a larger model may take
)

// Memory of things in addition to their bytes in the file, with room for slices that
// grow.
const (
	numberCost = 40  // a number
	stringCost = 56  // a string
	pieceCost  = 128 // a piece, its number in the structure, its part of a payload
	tensorCost = 128 // a payload
)

// cutter separates the structure of a model file from the contents of its
// tensors.
type cutter struct {
	scanner
	model  *onnxpb.ModelProto // the decoded structure; nil: it is only checked
	out    []byte             // not decoded yet, with payload numbers in place of contents
	pieces []*piece

	structure int64 // bytes of the file outside of contents
	memory    int64 // bytes of memory of the decoded structure and the pieces
}

// visit is a message that is being cut, and its current field.
type visit struct {
	*message
	name  string // of the field that holds the message
	end   int64  // offset
	depth int
	first int  // index of the message's first piece
	split bool // fields are decoded one by one: the model and its main graph

	num   protowire.Number
	typ   protowire.Type
	start int64 // offset of the tag
}

// String names the field.
func (v *visit) String() string {
	if f := v.fields[v.num]; f != nil {
		return f.name + " of " + v.name
	}
	return fmt.Sprintf("field %d of %s", v.num, v.name)
}

// cut reads the model file r. It decodes the structure into m, with payload numbers in place
// of tensor contents, and returns the pieces with these numbers. If m is nil, it checks the
// encoding of the structure.
func cut(r io.ReaderAt, size int64, m *onnxpb.ModelProto) ([]*piece, error) {
	c := &cutter{scanner: scanner{window{r: r, size: size}}, model: m}
	err := c.message(&visit{message: modelMessage, name: "model", end: size, split: true}, 0)
	return c.pieces, err
}

// batch is the number of bytes from which on fields are decoded. Together they would take
// as much memory as the structure.
const batch = 64 << 10

// decode decodes out, the fields collected so far, into the message being cut.
func (c *cutter) decode(v *visit) error {
	fields := c.out
	c.out = c.out[:0]
	if c.model == nil {
		return nil
	}
	into := proto.Message(c.model)
	if v.depth > 0 {
		into = c.model.Graph
	}
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(fields, into); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// charge counts n bytes of memory before they are allocated.
func (c *cutter) charge(pos, n int64) error {
	if c.memory += n; c.memory > max(freeMemory, memoryRatio*c.structure) {
		return errorf(pos, "%d MiB of structure would take at least %d MiB of memory,", c.structure>>20, c.memory>>20)
	}
	return nil
}

// consume counts n bytes of the file as structure. Decoded they take as much, and as much
// again in slices that grow.
func (c *cutter) consume(pos, n int64) error {
	if c.structure += n; c.structure > maxStructure {
		return errorf(pos, "more than %d MiB outside of tensors", maxStructure>>20)
	}
	return c.charge(pos, 2*n)
}

// message cuts a message whose fields begin at pos.
func (c *cutter) message(v *visit, pos int64) error {
	if v.depth > maxDepth {
		return errorf(pos, "%s is nested deeper than %d messages", v.name, maxDepth)
	}
	if err := c.charge(pos, v.size); err != nil {
		return err
	}
	v.first = len(c.pieces)
	for pos < v.end {
		num, typ, value, err := c.tag(v.name, pos, v.end)
		if err != nil {
			return err
		}
		v.num, v.typ, v.start = num, typ, pos
		if pos, err = c.field(v, value); err != nil {
			return err
		}
		if v.split && (len(c.out) >= batch || pos == v.end) {
			if err := c.decode(v); err != nil {
				return err
			}
		}
	}
	if v.tensor {
		return c.contents(v)
	}
	return nil
}

// maxInline is the largest raw_data that stays in the structure. A model may have very many scalar
// tensors, and each piece takes more memory than the content.
const maxInline = 64

// contents ends a tensor: payload numbers take the place of the pieces that were cut out.
func (c *cutter) contents(v *visit) error {
	pieces := c.pieces[v.first:]
	typed := slices.ContainsFunc(pieces, func(p *piece) bool { return p.field != fieldRawData })
	if last := len(pieces) - 1; last >= 0 && !typed && 0 < pieces[last].n && pieces[last].n <= maxInline { // if the field is repeated, the last one wins
		raw := *pieces[last]
		c.memory -= int64(len(pieces)) * pieceCost
		if c.model != nil { // without a model, Check needs the places of the contents
			c.pieces = c.pieces[:v.first]
		}
		c.out = protowire.AppendTag(c.out, fieldRawData, protowire.BytesType)
		c.out = protowire.AppendVarint(c.out, uint64(raw.n))
		return c.take(raw.off, raw.off+raw.n, stringCost)
	}
	for i := range pieces {
		c.out = protowire.AppendTag(c.out, fieldPayload, protowire.VarintType)
		c.out = protowire.AppendVarint(c.out, uint64(v.first+i))
	}
	return nil
}

// field cuts the current field, whose value begins at pos. Like the methods it calls,
// it returns the offset after the field.
func (c *cutter) field(v *visit, pos int64) (int64, error) {
	if v.tensor && v.num == fieldPayload {
		return 0, errorf(v.start, "%s uses field number %d, which this program reserves", v.name, v.num)
	}
	f := v.fields[v.num]
	if f == nil {
		f = &field{}
	}
	switch {
	case f.content != nil && v.typ == protowire.BytesType:
		return c.packed(v, f.content, pos)
	case f.content != nil && v.typ == f.content.single:
		return c.single(v, pos)
	case f.msg != nil && v.typ == protowire.BytesType:
		return c.inner(v, f, pos)
	case f.list && v.typ == protowire.BytesType:
		return c.numbers(v, f.single, pos)
	}
	return c.keep(v, pos)
}

// inner cuts a nested message.
func (c *cutter) inner(v *visit, f *field, pos int64) (int64, error) {
	n, body, err := c.length(v, pos, v.end)
	if err != nil {
		return 0, err
	}
	if err := c.consume(v.start, body-v.start); err != nil {
		return 0, err
	}
	if v.split && v.depth == 0 && f.name == "graph" {
		return body + n, c.mainGraph(v, f, body, body+n)
	}
	c.out = protowire.AppendTag(c.out, v.num, v.typ)
	c.out = append(c.out, make([]byte, lengthSize)...)
	begin := len(c.out)
	if err := c.message(&visit{message: f.msg, name: f.name, end: body + n, depth: v.depth + 1}, body); err != nil {
		return 0, err
	}
	putLength(c.out[begin-lengthSize:begin], len(c.out)-begin)
	return body + n, nil
}

// mainGraph cuts the main graph of the model, whose fields are decoded one by one.
func (c *cutter) mainGraph(v *visit, f *field, pos, end int64) error {
	if err := c.decode(v); err != nil {
		return err
	}
	if c.model != nil && c.model.Graph == nil {
		c.model.Graph = &onnxpb.GraphProto{}
	}
	return c.message(&visit{message: f.msg, name: f.name, end: end, depth: v.depth + 1, split: true}, pos)
}

// lengthSize is the space reserved for a length that is known only later.
const lengthSize = 5

// putLength writes n as a varint of len(b) bytes.
func putLength(b []byte, n int) {
	for i := range b {
		b[i] = byte(n>>(7*i)) | 0x80
	}
	b[len(b)-1] &^= 0x80
}

// keep copies the field unchanged.
func (c *cutter) keep(v *visit, pos int64) (int64, error) {
	next, err := c.skip(v, v.num, v.typ, pos, v.end)
	if err != nil {
		return 0, err
	}
	cost := int64(numberCost)
	if v.typ == protowire.BytesType {
		cost = stringCost
	}
	return next, c.take(v.start, next, cost)
}

// numbers copies a packed list as single fields. The decoder would copy the whole list again for each
// packed field, in quadratic time.
func (c *cutter) numbers(v *visit, single protowire.Type, pos int64) (int64, error) {
	n, pos, err := c.length(v, pos, v.end)
	if err != nil {
		return 0, err
	}
	for end := pos + n; pos < end; {
		next, err := c.skip(v, v.num, single, pos, end)
		if err != nil {
			return 0, err
		}
		c.out = protowire.AppendTag(c.out, v.num, single)
		if err := c.take(pos, next, numberCost); err != nil {
			return 0, err
		}
		pos = next
	}
	return pos, nil
}

// take appends the file's bytes [start, end) to out. cost is their additional memory
// when decoded.
func (c *cutter) take(start, end, cost int64) error {
	if err := c.consume(start, end-start); err != nil {
		return err
	}
	if err := c.charge(start, cost); err != nil {
		return err
	}
	at := len(c.out)
	c.out = append(c.out, make([]byte, end-start)...)
	return c.in.copy(c.out[at:], start)
}

// packed cuts content with a length prefix.
func (c *cutter) packed(v *visit, coding *coding, pos int64) (int64, error) {
	n, body, err := c.length(v, pos, v.end)
	if err != nil {
		return 0, err
	}
	p, err := c.piece(v.num, body)
	if err != nil {
		return 0, err
	}
	p.n = n
	if coding.width == 0 {
		return body + n, c.varints(v, p)
	}
	if n%coding.width != 0 {
		return 0, errorf(body, "%v has %d bytes, not a multiple of %d,", v, n, coding.width)
	}
	p.count = n / coding.width
	return body + n, nil
}

// varints counts the elements of a packed piece.
func (c *cutter) varints(v *visit, p *piece) error {
	for pos, end := p.off, p.off+p.n; pos < end; {
		b, err := c.in.peek(pos, end)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			value, n := protowire.ConsumeVarint(b)
			if n < 0 {
				if int64(len(b)) < end-pos && len(b) < 10 {
					break // the window ends within the number
				}
				return errorf(pos, "invalid varint in %v", v)
			}
			if err := c.element(p, pos, value); err != nil {
				return err
			}
			b, pos = b[n:], pos+int64(n)
		}
	}
	return nil
}

// single cuts one element with its own tag. Adjacent ones become one piece.
func (c *cutter) single(v *visit, pos int64) (next int64, err error) {
	var value uint64
	if v.typ == protowire.VarintType {
		value, next, err = c.varint(v, pos, v.end)
	} else {
		next, err = c.skip(v, v.num, v.typ, pos, v.end)
	}
	if err != nil {
		return 0, err
	}
	var p *piece
	if len(c.pieces) > v.first {
		p = c.pieces[len(c.pieces)-1]
	}
	if p == nil || !p.tagged || p.field != v.num || p.off+p.n != v.start {
		if p, err = c.piece(v.num, v.start); err != nil {
			return 0, err
		}
	}
	p.tagged = true
	p.n = next - p.off
	return next, c.element(p, v.start, value)
}

// piece adds a piece that begins at pos.
func (c *cutter) piece(num protowire.Number, pos int64) (*piece, error) {
	if err := c.charge(pos, pieceCost); err != nil {
		return nil, err
	}
	p := &piece{field: num, off: pos, lo: math.MaxInt64, hi: math.MinInt64}
	c.pieces = append(c.pieces, p)
	return p, nil
}

// element counts an element of a piece, which begins at pos. It records the offset of
// every markEvery-th element.
func (c *cutter) element(p *piece, pos int64, v uint64) error {
	if p.count%markEvery == 0 {
		if err := c.charge(pos, numberCost); err != nil {
			return err
		}
		p.marks = append(p.marks, pos)
	}
	p.count++
	p.lo, p.hi = min(p.lo, p.value(v)), max(p.hi, p.value(v))
	return nil
}
