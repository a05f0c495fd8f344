package ggml

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"onnxquant/internal/kernels"
)

// Encoding packs rows of float32 elements, block by block, into bytes.
//
// Those of this package are variables, such as [Q4_K]. One of the caller's own is a
// literal, which [Register] makes known by name.
type Encoding struct {
	Name     string // as ggml writes it in capitals: Q4_K
	Type     uint32 // ggml's number of the type, which a GGUF file stores
	Elements int    // of a block; 1 if elements are encoded one by one
	Bytes    int    // of a block

	// Encode sets dst to the blocks of a row, of finite elements if blocks have
	// several. The importance of the row's elements, as many as there are, is nil if
	// all are equal, and may be ignored.
	// Encode is called by several goroutines at once, as Decode is, its inverse.
	Encode func(dst []byte, row, importance []float32)
	Decode func(row []float32, src []byte)

	Form *Form // of blocks; nil if they have no codes and scales of that kind
}

// String returns the name.
func (e *Encoding) String() string { return e.Name }

// BitsPerWeight returns how many bits of a packed tensor an element takes, with its
// part of the scales.
func (e *Encoding) BitsPerWeight() float64 { return 8 * float64(e.Bytes) / float64(e.Elements) }

// RowSize returns the bytes of a row of so many elements.
func (e *Encoding) RowSize(elements int) (int, error) {
	if elements < 0 || elements%e.Elements != 0 {
		return 0, fmt.Errorf("%s: a row of %d elements is not cut into whole blocks of %d", e.Name, elements, e.Elements)
	}
	blocks := elements / e.Elements
	if blocks > math.MaxInt/e.Bytes {
		return 0, fmt.Errorf("%s: a row of %d elements is too long", e.Name, elements)
	}
	return blocks * e.Bytes, nil
}

// PackedShape returns the shape of a packed tensor of bytes: that of the tensor, whose
// rows lie along the last dimension, with the bytes of a row as the last one. It
// fails if the last dimension is not a multiple of the elements of a block.
func (e *Encoding) PackedShape(shape []int) ([]int, error) {
	if len(shape) == 0 {
		return nil, fmt.Errorf("%s: a scalar has no rows to cut into blocks", e.Name)
	}
	last := len(shape) - 1
	size, err := e.RowSize(shape[last])
	if err != nil {
		return nil, fmt.Errorf("shape %v: %w", shape, err)
	}
	packed := slices.Clone(shape)
	packed[last] = size
	return packed, nil
}

// Shape returns the shape of the tensor whose PackedShape is packed.
func (e *Encoding) Shape(packed []int) ([]int, error) {
	last := len(packed) - 1
	if last < 0 || packed[last] < 0 || packed[last]%e.Bytes != 0 {
		return nil, fmt.Errorf("%s: shape %v: the last dimension is not one of whole blocks of %d bytes", e.Name, packed, e.Bytes)
	}
	blocks := packed[last] / e.Bytes
	if blocks > math.MaxInt/e.Elements {
		return nil, fmt.Errorf("%s: shape %v: rows are too long", e.Name, packed)
	}
	shape := slices.Clone(packed)
	shape[last] = blocks * e.Elements
	return shape, nil
}

// Quantize sets dst to the blocks of x, rows of so many columns. The importance of
// each column, nil if all are equal, is how much the squares of errors there count;
// encodings without a search do not use it. Up to so many workers share the rows; the
// bytes do not depend on how many.
//
// All elements must be finite, unless the encoding is of single floats.
func (e *Encoding) Quantize(dst []byte, x []float32, columns int, importance []float32, workers int) error {
	size, err := e.rows(len(dst), len(x), columns)
	if err != nil {
		return err
	}
	if importance != nil {
		if len(importance) != columns {
			return fmt.Errorf("%s: importance of %d columns for rows of %d", e.Name, len(importance), columns)
		}
		for i, v := range importance {
			if !(v >= 0) || !kernels.IsFinite(v) {
				return fmt.Errorf("%s: the importance of column %d is %v", e.Name, i, v)
			}
		}
	}
	return job{e, false, dst, x, importance, columns, size}.run(workers)
}

// Dequantize sets x to what the blocks of src stand for, rows of so many columns, with
// up to so many workers.
func (e *Encoding) Dequantize(x []float32, src []byte, columns, workers int) error {
	size, err := e.rows(len(src), len(x), columns)
	if err != nil {
		return err
	}
	return job{e, true, src, x, nil, columns, size}.run(workers)
}

// rows returns the bytes of a row, of so many columns, if all lengths fit together.
func (e *Encoding) rows(packed, elements, columns int) (size int, err error) {
	size, err = e.RowSize(columns)
	switch {
	case err != nil:
		return 0, err
	case columns == 0 && elements == 0 && packed == 0:
		return 0, nil
	case columns == 0 || elements%columns != 0:
		return 0, fmt.Errorf("%s: %d elements are not rows of %d", e.Name, elements, columns)
	case packed%size != 0 || packed/size != elements/columns:
		return 0, fmt.Errorf("%s: %d bytes for %d rows of %d", e.Name, packed, elements/columns, size)
	}
	return size, nil
}

// job is work on rows.
type job struct {
	encoding   *Encoding
	decode     bool
	packed     []byte
	x          []float32
	importance []float32
	columns    int // elements of a row
	size       int // bytes of a row
}

// rows does some of the rows.
func (j job) rows(first, end int) error {
	e := j.encoding
	for r := first; r < end; r++ {
		packed, row := j.packed[r*j.size:][:j.size], j.x[r*j.columns:][:j.columns]
		switch {
		case j.decode:
			e.Decode(row, packed)
		case e.Elements > 1 && !kernels.IsFinite(kernels.AbsMax(0, row)):
			return fmt.Errorf("%s: row %d holds a NaN or an infinity", e.Name, r)
		default:
			e.Encode(packed, row, j.importance)
		}
	}
	return nil
}

// run does all rows, shared by so many workers. It returns the error of the first row
// that has one.
func (j job) run(workers int) error {
	if len(j.x) == 0 {
		return nil
	}
	rows := len(j.x) / j.columns
	workers = min(workers, rows)
	if workers <= 1 {
		return j.rows(0, rows)
	}
	return j.share(rows, workers)
}

func (j job) share(rows, workers int) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { errs[w] = j.rows(w*rows/workers, (w+1)*rows/workers) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
