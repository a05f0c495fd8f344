package lazy

import (
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
)

// Grid is a matrix of packed unsigned codes, as in MatMulNBits. Each row starts at a byte and may be
// padded.
type Grid struct {
	Stored     io.ReaderAt
	Bits       int
	Rows, Cols int64
	Pitch      int64 // codes per row, with padding
}

// Tensor returns the codes row by row, without padding.
func (g Grid) Tensor() *Tensor {
	return &Tensor{DType: dtype.Uint8, Shape: []int64{g.Rows, g.Cols}, Read: func(a *Arena, dst []float32, off int64) error {
		q, release := a.raw(len(dst))
		defer release()
		if err := g.Read(a, q, off); err != nil {
			return err
		}
		for i, c := range q {
			dst[i] = float32(c)
		}
		return nil
	}}
}

// Read reads codes from code off on, counted without padding.
func (g Grid) Read(a *Arena, q []byte, off int64) error {
	if g.Pitch == g.Cols {
		return readPacked(a, q, g.Stored, g.Bits, false, off)
	}
	per := int64(8 / g.Bits)
	at := func(i int64) int64 { return i/g.Cols*g.Pitch + i%g.Cols }
	if len(q) == 0 {
		return nil
	}
	// Several rows are read at once unless most bytes are padding.
	first, last := at(off), at(off+int64(len(q))-1)
	together := last-first <= 4*int64(len(q))
	var raw []byte
	if together {
		var release func()
		raw, release = a.raw(int(last/per - first/per + 1))
		defer release()
		if err := buffer.ReadFull(g.Stored, raw, first/per); err != nil {
			return err
		}
	}
	for from := int64(0); from < int64(len(q)); {
		n := min(g.Cols-(off+from)%g.Cols, int64(len(q))-from)
		code := at(off + from)
		part := q[from : from+n]
		var err error
		if together {
			err = unpackFrom(a, part, raw[code/per-first/per:], g.Bits, false, int(code%per))
		} else {
			err = readPacked(a, part, g.Stored, g.Bits, false, code)
		}
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// SwapHalves reads bytes with their halves of four bits swapped.
func SwapHalves(from io.ReaderAt) io.ReaderAt { return swapped{from} }

type swapped struct{ io.ReaderAt }

func (s swapped) ReadAt(b []byte, off int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(b, off)
	for i, v := range b[:n] {
		b[i] = v<<4 | v>>4
	}
	return n, err
}
