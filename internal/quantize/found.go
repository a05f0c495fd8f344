package quantize

import (
	"errors"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/shapes"
)

// Found has codes and scales that calibration found for a weight before the conversion.
type Found struct {
	// For a Codec: codes (bytes), scales (float32) and zero points (bytes), in the order of the
	// weight.
	Codes, Scales, Zeros Stored
	// Mins has a float32 for each block, which is subtracted from the decoded elements; nil: nothing is. Calibration finds none.
	Mins io.ReaderAt
	// For an Encoding: encoded columns, one after another, and their decoded values, float32 in the
	// order of the weight.
	Blocks, Values Stored
	// Exact: the elements are what the codes decode to, with scales as they are stored, and need not be read.
	Exact bool
	// Shift is what a bias adds to the product of each column to correct its mean; nil: nothing.
	Shift []float32
}

// Stored is a part of a file.
type Stored interface {
	io.ReaderAt
	io.WriterAt
}

// errNotFinite stops a weight whose elements are not all finite.
var errNotFinite = errors.New("not finite")

// recall sets the codes of a chunk, and the scales and zero points of its tile, from t.Found.
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
		if t.ScaleType == dtype.Float16 || t.ScaleType == dtype.BFloat16 { // they are stored so
			rounded := raw[:t.ScaleType.Bytes(n)]
			t.ScaleType.Encode(rounded, b.scale[i*n:(i+1)*n])
			t.ScaleType.Decode(b.scale[i*n:(i+1)*n], rounded)
		}
		if err := buffer.ReadFull(f.Zeros, b.zero[i*n:(i+1)*n], at); err != nil {
			return err
		}
		if f.Mins == nil {
			continue
		}
		if err := buffer.ReadFull(f.Mins, raw, 4*at); err != nil {
			return err
		}
		dtype.Float32.Decode(buffer.Grow(&b.mins, rows*n)[i*n:(i+1)*n], raw)
	}
	return nil
}

// recallBlocks reads the encoded blocks of a tile.
func (t Tile) recallBlocks(packed []byte) error {
	first := t.first
	if t.Inner > 1 {
		first = (t.slab/t.Blocks()*t.Inner + t.col) * t.Blocks()
	}
	return buffer.ReadFull(t.Found.Blocks, packed, first*int64(t.Encoding.Bytes))
}

// ReadColumns sets x to columns of a matrix, row by row: row i has element i of each column.
func (w *Weight) ReadColumns(raw *[]byte, x []float32, first, n int64) error {
	size := w.DType.Bits() / 8
	if w.Inner > 1 || w.Outer == 1 {
		bytes := buffer.Grow(raw, w.K*n*size)
		err := w.Source.ReadRows(bytes, w.columnAt(first, w.K)*size, w.K, n*size, w.Inner*size)
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

// columnAt is where a column begins in an array [Outer, rows, Inner]; in one of matrices with one column, rows follow
// each other. Columns that are read or written at once must be of one matrix.
func (w *Weight) columnAt(column, rows int64) int64 {
	return column/w.Inner*w.Inner*rows + column%w.Inner
}

// WriteColumns stores codes, scales and zero points of columns of a matrix. They are laid out like
// the elements of ReadColumns.
func (w *Weight) WriteColumns(f *Found, first, n int64, codes []byte, scales []float32, zeros []byte) error {
	if err := w.writeRows(f.Codes, first, n, codes, 1); err != nil {
		return err
	}
	if err := w.writeRows(f.Scales, first, n, asBytes(scales), 4); err != nil {
		return err
	}
	return w.writeRows(f.Zeros, first, n, zeros, 1)
}

// WriteBlocks stores encoded columns of a matrix and their decoded values. The values are laid out
// like the elements of ReadColumns.
func (w *Weight) WriteBlocks(f *Found, first, n int64, packed []byte, values []float32) error {
	if _, err := f.Blocks.WriteAt(packed, first*w.Blocks()*int64(w.Encoding.Bytes)); err != nil {
		return err
	}
	return w.writeRows(f.Values, first, n, asBytes(values), 4)
}

func asBytes(x []float32) []byte {
	raw := make([]byte, 4*len(x))
	dtype.Float32.Encode(raw, x)
	return raw
}

// writeRows stores columns of a matrix: rows of n units, each of size bytes.
func (w *Weight) writeRows(to io.WriterAt, first, n int64, data []byte, size int64) error {
	rows, width := int64(len(data))/(n*size), n*size
	at := w.columnAt(first, rows) * size
	if w.Inner == 1 && w.Outer > 1 {
		transposed := make([]byte, len(data))
		transposeUnits(transposed, data, int(rows), int(n), int(size))
		data, rows, width, at = transposed, 1, int64(len(data)), first*rows*size
	}
	for i := range rows {
		if _, err := to.WriteAt(data[i*width:(i+1)*width], at+i*w.Inner*size); err != nil {
			return err
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

// Decoded returns the decoded elements of a weight, in the type of the weight.
func (w *Weight) Decoded(f *Found) io.ReaderAt {
	if w.Encoding != nil {
		return &values{w, f}
	}
	return &decoded{w: w, f: f}
}

// ReadFound is ReadColumns for the decoded elements.
func (w *Weight) ReadFound(f *Found, raw *[]byte, x []float32, first, n int64) error {
	of := *w
	of.Source = rowsOf{w.Decoded(f)}
	return of.ReadColumns(raw, x, first, n)
}

// rowsOf is a Source of decoded elements.
type rowsOf struct{ io.ReaderAt }

func (r rowsOf) ReadRows(dst []byte, off, rows, n, stride int64) error {
	for i := range rows {
		if err := buffer.ReadFull(r, dst[i*n:(i+1)*n], off+i*stride); err != nil {
			return err
		}
	}
	return nil
}

type values struct {
	w *Weight
	f *Found
}

// ReadAt encodes whole elements.
func (v *values) ReadAt(dst []byte, off int64) (int, error) {
	size := v.w.DType.Bits() / 8
	first, last := off/size, min(shapes.DivideUp(off+int64(len(dst)), size), v.w.Elements())
	if first >= last {
		return 0, io.EOF
	}
	raw, x := make([]byte, 4*(last-first)), make([]float32, last-first)
	if err := buffer.ReadFull(v.f.Values, raw, 4*first); err != nil {
		return 0, err
	}
	dtype.Float32.Decode(x, raw)
	encoded := raw[:size*(last-first)]
	v.w.DType.Encode(encoded, x)
	n := copy(dst, encoded[off-first*size:])
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

type decoded struct {
	w *Weight
	f *Found
}

// ReadAt decodes whole rows: rows of K elements if blocks are contiguous, else rows of Inner
// elements.
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
