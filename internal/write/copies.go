package write

import (
	"hash/crc32"
	"io"

	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/packing"
)

// stretchSize is the size of a stretch, in bytes.
const stretchSize = 1 << 20

// Stretch is a piece of a tensor's content that is copied from the input unchanged.
type Stretch struct {
	Content    int // index in Output.Contents
	Start, Len int64
	from       *modelfile.Payload
}

// Stretches cuts the contents to be copied into pieces.
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

// Place returns where the stretch is read from.
func (s Stretch) Place() modelfile.Place { return s.from.Place(s.Start) }

// Copy copies the stretch, using *buf as its buffer. It returns the checksum of its bytes.
func (s Stretch) Copy(buf *[]byte, to io.WriterAt) (sum uint32, err error) {
	raw := buffer.Grow(buf, s.Len)
	if err := buffer.ReadFull(s.from, raw, s.Start); err != nil {
		return 0, err
	}
	_, err = to.WriteAt(raw, s.Start)
	return crc32.Checksum(raw, packing.Castagnoli), err
}

// Sum reads what Copy wrote and returns its checksum.
func (s Stretch) Sum(buf *[]byte, written io.ReaderAt) (uint32, error) {
	raw := buffer.Grow(buf, s.Len)
	err := buffer.ReadFull(written, raw, s.Start)
	return crc32.Checksum(raw, packing.Castagnoli), err
}
