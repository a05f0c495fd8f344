package modelfile

import (
	"encoding/binary"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// coding says how a content field of TensorProto is written on the wire.
type coding struct {
	name   string
	width  int64          // bytes of a fixed-size element, 0 for varints
	single protowire.Type // of an element that is not packed
}

var codings = map[protowire.Number]coding{
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
	off, n int64   // where it lies in the file
	count  int64   // elements
	tagged bool    // each element has its own tag: not packed
	marks  []int64 // offset of every markEvery-th element, where elements vary in size
	data   []byte  // the content itself, if it is small
}

// mark counts an element that begins at pos.
func (p *piece) mark(pos int64) {
	if p.count%markEvery == 0 {
		p.marks = append(p.marks, pos)
	}
	p.count++
}

// direct reports whether the bytes in the file are the little-endian elements.
func (p *piece) direct() bool { return !p.tagged && codings[p.field].width > 0 }

// decoder reads a piece whose elements vary in size as elements of elem bytes.
type decoder struct {
	r io.ReaderAt
	piece
	elem int64
}

func (d *decoder) ReadAt(dst []byte, off int64) (int, error) {
	var scratch [8]byte
	done := 0
	skip := off % d.elem // bytes of the first element that are not wanted
	for i := off / d.elem; done < len(dst) && i < d.count; {
		mark := i / markEvery
		end := d.off + d.n
		if int(mark)+1 < len(d.marks) {
			end = d.marks[mark+1]
		}
		src, err := d.bytes(d.marks[mark], end)
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

func (d *decoder) bytes(off, end int64) ([]byte, error) {
	if d.data != nil {
		return d.data[off-d.off : end-d.off], nil
	}
	b := make([]byte, end-off)
	return b, readFull(d.r, b, off)
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
