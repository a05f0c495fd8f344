package modelfile

import (
	"encoding/binary"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// coding says how a content field of TensorProto is written on the wire.
type coding struct {
	name   string
	width  int64          // bytes of a fixed-size element, 0 for varints
	single protowire.Type // of an element that is not packed
}

var codings = map[protowire.Number]*coding{
	fieldFloatData:  {"float_data", 4, protowire.Fixed32Type},
	fieldInt32Data:  {"int32_data", 0, protowire.VarintType},
	fieldInt64Data:  {"int64_data", 0, protowire.VarintType},
	fieldRawData:    {"raw_data", 1, protowire.BytesType},
	fieldDoubleData: {"double_data", 8, protowire.Fixed64Type},
	fieldUint64Data: {"uint64_data", 0, protowire.VarintType},
}

// markEvery is the distance, in elements, of the places a piece remembers.
const markEvery = 4096

// piece is some content that was cut out of a tensor.
type piece struct {
	field  protowire.Number
	tagged bool    // each element has its own tag: not packed
	off, n int64   // where it lies in the file
	count  int64   // elements
	marks  []int64 // offset of every markEvery-th element, where elements vary in size
	lo, hi int64   // the least and the greatest of varints
}

// value is a varint as the field's type understands it. Values of uint64_data
// that no int64 holds count as the largest one.
func (p *piece) value(v uint64) int64 {
	switch p.field {
	case fieldInt32Data:
		return int64(int32(v))
	case fieldUint64Data:
		return int64(min(v, math.MaxInt64))
	}
	return int64(v)
}

// direct reports whether the bytes in the file are the little-endian elements.
func (p *piece) direct() bool { return !p.tagged && codings[p.field].width > 0 }

// decoder reads a piece whose elements vary in size as elements of elem bytes.
type decoder struct {
	r io.ReaderAt
	*piece
	elem int64
}

func (d *decoder) ReadAt(dst []byte, off int64) (int, error) {
	var scratch [8]byte
	done := 0
	skip := off % d.elem // bytes of the first element that are not wanted
	for i := off / d.elem; done < len(dst) && i < d.count; {
		mark := i / markEvery
		src, err := d.stretch(mark)
		if err != nil {
			return done, err
		}
		for j := mark * markEvery; len(src) > 0 && done < len(dst); j++ {
			v, n := d.next(src)
			src = src[n:]
			if j < i {
				continue
			}
			binary.LittleEndian.PutUint64(scratch[:], v)
			done += copy(dst[done:], scratch[skip:d.elem])
			skip, i = 0, j+1
		}
	}
	if done < len(dst) {
		return done, io.EOF
	}
	return done, nil
}

// stretch returns the bytes from one mark to the next.
func (d *decoder) stretch(mark int64) ([]byte, error) {
	end := d.off + d.n
	if int(mark)+1 < len(d.marks) {
		end = d.marks[mark+1]
	}
	b := make([]byte, end-d.marks[mark])
	return b, readFull(d.r, b, d.marks[mark])
}

// outside finds the first varint that is not in [lo, hi], and its offset in the
// file. There is one.
func (d *decoder) outside(lo, hi int64) (value, off int64, err error) {
	for i, off := range d.marks {
		src, err := d.stretch(int64(i))
		if err != nil {
			return 0, 0, err
		}
		for len(src) > 0 {
			v, n := d.next(src)
			if value := d.value(v); value < lo || value > hi {
				return value, off, nil
			}
			src, off = src[n:], off+int64(n)
		}
	}
	return 0, 0, io.ErrUnexpectedEOF // the file has changed
}

// next decodes the element that b begins with. The cutter has checked it.
func (d *decoder) next(b []byte) (v uint64, n int) {
	if d.tagged {
		_, _, n = protowire.ConsumeTag(b)
	}
	switch codings[d.field].width {
	case 4:
		return uint64(binary.LittleEndian.Uint32(b[n:])), n + 4
	case 8:
		return binary.LittleEndian.Uint64(b[n:]), n + 8
	}
	v, k := protowire.ConsumeVarint(b[n:])
	return v, n + k
}
