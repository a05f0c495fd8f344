package write

import (
	"hash/crc32"
	"io"

	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
)

// stretchSize is the number of bytes that are copied at a time.
const stretchSize = 1 << 20

// Stretch is a part of a content of the input that is copied as it is.
type Stretch struct {
	Content    int
	Start, Len int64
	from       io.ReaderAt
}

// Stretches cuts the contents that are copied.
func (o *Output) Stretches() (list []Stretch) {
	for i, p := range o.Contents {
		if p.Copy == nil {
			continue
		}
		for off := int64(0); off < p.Size; off += stretchSize {
			list = append(list, Stretch{i, off, min(stretchSize, p.Size-off), p.Copy})
		}
	}
	return list
}

// Copy copies the stretch by way of *buf. It returns a checksum of its bytes.
func (s Stretch) Copy(buf *[]byte, to io.WriterAt) (sum uint32, err error) {
	raw := buffer.Grow(buf, s.Len)
	if err := buffer.ReadFull(s.from, raw, s.Start); err != nil {
		return 0, err
	}
	_, err = to.WriteAt(raw, s.Start)
	return crc32.Checksum(raw, packing.Castagnoli), err
}

// Sum returns the checksum of the stretch as it was written.
func (s Stretch) Sum(buf *[]byte, written io.ReaderAt) (uint32, error) {
	raw := buffer.Grow(buf, s.Len)
	err := buffer.ReadFull(written, raw, s.Start)
	return crc32.Checksum(raw, packing.Castagnoli), err
}
