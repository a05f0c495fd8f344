package quantize

import (
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
)

// Found has the codes, scales and zero points of a weight that were found before the conversion:
// bytes, float32 and bytes, in the order of the weight.
type Found struct {
	Codes, Scales, Zeros interface {
		io.ReaderAt
		io.WriterAt
	}
}

// recall sets the codes of a chunk, and the scales and zero points of its tile, to those that
// were found.
func (t Tile) recall(b *Buffers, part chunk) error {
	f := t.Found
	for i := range part.rows {
		if err := buffer.ReadFull(f.Codes, b.codes[i*part.n:(i+1)*part.n], part.off+i*t.Inner); err != nil {
			return err
		}
	}
	rows, n := t.scaleGrid()
	raw := buffer.Grow(&b.scaleBytes, 4*n)
	for i := range rows {
		at := t.first + i*t.Inner
		if err := buffer.ReadFull(f.Scales, raw, 4*at); err != nil {
			return err
		}
		dtype.Float32.Decode(b.scale[i*n:(i+1)*n], raw)
		if err := buffer.ReadFull(f.Zeros, b.zero[i*n:(i+1)*n], at); err != nil {
			return err
		}
	}
	return nil
}

// ReadColumns sets x to columns of a matrix, row by row: row i has element i of each.
func (w *Weight) ReadColumns(raw *[]byte, x []float32, first, n int64) error {
	size := w.DType.Bits() / 8
	if w.Inner > 1 || w.Outer == 1 {
		bytes := buffer.Grow(raw, w.K*n*size)
		err := w.Source.ReadRows(bytes, first*size, w.K, n*size, w.Inner*size)
		w.DType.Decode(x, bytes)
		return err
	}
	bytes := buffer.Grow(raw, w.K*n*size)
	if err := w.Source.ReadRows(bytes, first*w.K*size, 1, w.K*n*size, w.K*n*size); err != nil {
		return err
	}
	rows := make([]float32, w.K*n)
	w.DType.Decode(rows, bytes)
	packing.Transpose(x, rows, int(n), int(w.K))
	return nil
}

// WriteColumns stores codes, scales and zero points of columns of a matrix, which lie as the
// elements of ReadColumns.
func (w *Weight) WriteColumns(f *Found, first, n int64, codes []byte, scales []float32, zeros []byte) error {
	raw := make([]byte, 4*len(scales))
	dtype.Float32.Encode(raw, scales)
	blocks := w.Blocks()
	for _, part := range []struct {
		to         io.WriterAt
		data       []byte
		rows, size int64
	}{{f.Codes, codes, w.K, 1}, {f.Scales, raw, blocks, 4}, {f.Zeros, zeros, blocks, 1}} {
		data, stride := part.data, w.Inner*part.size
		rows, width := part.rows, n*part.size
		at := first * part.size
		if w.Inner == 1 && w.Outer > 1 {
			transposed := make([]byte, len(data))
			transposeUnits(transposed, data, int(part.rows), int(n), int(part.size))
			data, rows, width, at = transposed, 1, part.rows*n*part.size, first*part.rows*part.size
		}
		for i := range rows {
			if _, err := part.to.WriteAt(data[i*width:(i+1)*width], at+i*stride); err != nil {
				return err
			}
		}
	}
	return nil
}

// transposeUnits transposes a matrix whose elements have size bytes.
func transposeUnits(dst, src []byte, rows, columns, size int) {
	for i := range rows {
		for j := range columns {
			copy(dst[(j*rows+i)*size:][:size], src[(i*columns+j)*size:])
		}
	}
}

// Decoded reads the elements of a weight as its codes say, encoded like the weight itself.
func (w *Weight) Decoded(f *Found) io.ReaderAt { return &decoded{w: w, f: f} }

type decoded struct {
	w *Weight
	f *Found
}

// ReadAt decodes the rows that it needs as a whole: rows of K elements if these are contiguous,
// else rows of Inner elements.
func (d *decoded) ReadAt(dst []byte, off int64) (int, error) {
	w, codec := d.w, d.w.Codec
	columns := w.Inner
	if columns == 1 {
		columns = w.K
	}
	size := w.DType.Bits() / 8
	row := columns * size
	x, q, raw := make([]float32, columns), make([]byte, columns), make([]byte, row)
	done := 0
	for done < len(dst) {
		at := off + int64(done)
		r := at / row
		if r*columns >= w.Elements() {
			return done, io.EOF
		}
		first, n := r*w.Blocks(), w.Blocks() // scales
		if w.Inner > 1 {
			first, n = (r/w.K*w.Blocks()+r%w.K/w.Block)*w.Inner, w.Inner
		}
		scale, zero, bytes := make([]float32, n), make([]byte, n), make([]byte, 4*n)
		for _, read := range []struct {
			from io.ReaderAt
			to   []byte
			at   int64
		}{{d.f.Codes, q, r * columns}, {d.f.Scales, bytes, 4 * first}, {d.f.Zeros, zero, first}} {
			if err := buffer.ReadFull(read.from, read.to, read.at); err != nil {
				return done, err
			}
		}
		dtype.Float32.Decode(scale, bytes)
		if w.Inner > 1 {
			codec.DecodeColumns(x, q, scale, zero)
		} else {
			codec.DecodeBlocks(x, q, scale, zero, int(w.K), int(w.Block))
		}
		w.DType.Encode(raw, x)
		done += copy(dst[done:], raw[at%row:])
	}
	return done, nil
}
