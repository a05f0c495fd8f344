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
// The encodings of this package are variables, such as [Q4_K]. [Register] adds others. An Encoding
// must not be changed.
type Encoding struct {
	Name     string // ggml's name in capitals: Q4_K
	Type     uint32 // ggml's number of the type, which a GGUF file stores
	Elements int    // per block; 1 if elements are encoded one by one
	Bytes    int    // of a block

	// Encode encodes a row as blocks. Elements are finite if blocks have more than one.
	// importance has a weight for each element, or is nil; an encoding may ignore it.
	// Decode is the inverse. Both must be safe for concurrent use.
	Encode func(dst []byte, row, importance []float32)
	Decode func(row []float32, src []byte)

	Form *Form // blocks as codes and scales; nil if they cannot be expressed so
}

// String returns the name.
func (e *Encoding) String() string { return e.Name }

// BitsPerWeight returns the bits per element, including its share of the scales.
func (e *Encoding) BitsPerWeight() float64 { return 8 * float64(e.Bytes) / float64(e.Elements) }

// RowSize returns the size in bytes of an encoded row.
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

// PackedShape returns the shape of a packed tensor of bytes. Its last dimension is the bytes of a row;
// the others are those of shape. It fails if the last dimension of shape is not a multiple of the
// elements of a block.
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

// Quantize encodes x, rows of the given number of columns, to dst. importance weights the squared
// errors by column; nil weights all equally. Encodings without a search ignore it. At most workers
// goroutines share the rows; the bytes do not depend on their number.
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

// Dequantize decodes src to x, rows of the given number of columns, with at most workers
// goroutines.
func (e *Encoding) Dequantize(x []float32, src []byte, columns, workers int) error {
	size, err := e.rows(len(src), len(x), columns)
	if err != nil {
		return err
	}
	return job{e, true, src, x, nil, columns, size}.run(workers)
}

// rows returns the size in bytes of a row, or an error if the lengths do not match.
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

// job encodes or decodes rows.
type job struct {
	encoding   *Encoding
	decode     bool
	packed     []byte
	x          []float32
	importance []float32
	columns    int // elements of a row
	size       int // bytes of a row
}

// rows does rows first, …, end-1.
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

// run does all rows, shared by several workers. It returns the error of the first row with
// an error.
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
