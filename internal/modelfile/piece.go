package modelfile

import (
	"encoding/binary"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// coding is the wire encoding of a content field of TensorProto.
type coding struct {
	name   string
	width  int64          // bytes of an element, 0 for varints
	single protowire.Type // of an element with its own tag
}

var codings = map[protowire.Number]*coding{
	fieldFloatData:  {"float_data", 4, protowire.Fixed32Type},
	fieldInt32Data:  {"int32_data", 0, protowire.VarintType},
	fieldInt64Data:  {"int64_data", 0, protowire.VarintType},
	fieldRawData:    {"raw_data", 1, protowire.BytesType},
	fieldDoubleData: {"double_data", 8, protowire.Fixed64Type},
	fieldUint64Data: {"uint64_data", 0, protowire.VarintType},
}

// markEvery is the number of elements from one mark of a piece to the next.
const markEvery = 4096

// piece is a part of the content of a tensor that was cut out.
type piece struct {
	field  protowire.Number
	tagged bool    // each element has its own tag: not packed
	off, n int64   // offset and bytes in the file
	count  int64   // elements
	marks  []int64 // offset of every markEvery-th element, if elements vary in size
	lo, hi int64   // minimum and maximum of varints
}

// value converts a varint to the type of the field. It clamps values of uint64_data to the largest
// int64.
func (p *piece) value(v uint64) int64 {
	switch p.field {
	case fieldInt32Data:
		return int64(int32(v))
	case fieldUint64Data:
		return int64(min(v, math.MaxInt64))
	}
	return int64(v)
}

// direct reports whether the bytes in the file are the elements, little-endian.
func (p *piece) direct() bool { return !p.tagged && codings[p.field].width > 0 }

// decoder reads a piece with elements of varying size as elements of elem bytes.
type decoder struct {
	r io.ReaderAt
	*piece
	elem int64
}

func (d *decoder) ReadAt(dst []byte, off int64) (int, error) {
	var scratch [8]byte
	done := 0
	skip := off % d.elem // bytes before off in the first element
	for i := off / d.elem; done < len(dst) && i < d.count; {
		mark := i / markEvery
		src, err := d.fromMark(mark)
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

// fromMark reads the bytes from a mark to the next.
func (d *decoder) fromMark(mark int64) ([]byte, error) {
	end := d.off + d.n
	if int(mark)+1 < len(d.marks) {
		end = d.marks[mark+1]
	}
	b := make([]byte, end-d.marks[mark])
	return b, readFull(d.r, b, d.marks[mark])
}

// outside finds the first varint that is not in [lo, hi], and its offset in the
// file. There must be one.
func (d *decoder) outside(lo, hi int64) (value, off int64, err error) {
	for i, off := range d.marks {
		src, err := d.fromMark(int64(i))
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

// next decodes the first element of b and returns its size. The cutter has checked it.
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
