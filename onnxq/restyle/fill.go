package restyle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/commit"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
)

// fill computes the content of a new tensor, in pieces in any order.
type fill struct {
	tensor *onnxpb.TensorProto
	codes  *packing.Codes // how codes are packed; nil if the elements are floats
	pieces int
	bytes  func(piece int) int64
	make   func(b *buffers, to sink, piece int) error
}

// sink takes the content of a tensor: bytes, or codes that may share bytes.
type sink struct {
	io.WriterAt
	codes *packing.Writer
}

// buffers are the buffers of one worker.
type buffers struct {
	arena      lazy.Arena
	raw        []byte    // encoded elements
	x          []float32 // decoded elements
	transposed []float32 // x transposed
	codes      []byte    // one per byte
	stored     []byte    // codes transposed
	packed     []byte    // packed codes
}

// elementBytes bounds the memory of buffers per element.
const elementBytes = 4 + 4 + 4 + 1

// content implements write.Content: it writes the pieces of the fills and the stretches that
// are copied.
type content struct {
	out       *write.Output
	fills     []fill
	places    []int // by fill: index of its content in the output
	ends      []int // ends[i] is the number of pieces of fills 0, …, i
	stretches []write.Stretch
	workers   int
	progress  func(done, total int64) // may be nil
}

// newContent must be called before the output is placed.
func newContent(out *write.Output, fills []fill, opts Options) *content {
	c := &content{out: out, fills: fills, stretches: out.Stretches(), progress: opts.Progress}
	pieces := 0
	for _, f := range fills {
		pieces += f.pieces
		c.places, c.ends = append(c.places, write.Index(f.tensor)), append(c.ends, pieces)
	}
	c.workers, _ = work.Divide(opts.Threads, opts.Memory, elementBytes)
	return c
}

// Write implements write.Content.
func (c *content) Write(ctx context.Context, target *commit.Target) error {
	sinks, err := c.out.Begin(target)
	if err != nil {
		return err
	}
	return c.make(ctx, func(i int) io.WriterAt { return sinks[i] }, c.progress)
}

// Verify implements write.Content. It computes the contents again and compares them with the
// file.
func (c *content) Verify(ctx context.Context, target *commit.Target) error {
	model, contents, err := c.out.Reopen(target)
	if err != nil {
		return err
	}
	defer model.Close()
	return c.make(ctx, func(i int) io.WriterAt { return &comparer{written: contents[i], name: c.out.Name(i)} }, nil)
}

// make computes all pieces and copies all stretches to the given writers.
func (c *content) make(ctx context.Context, where func(content int) io.WriterAt, progress func(done, total int64)) error {
	sinks := make([]sink, len(c.fills))
	total := int64(0)
	for i, f := range c.fills {
		sinks[i].WriterAt = where(c.places[i])
		if f.codes != nil {
			sinks[i].codes = packing.NewWriter(sinks[i].WriterAt, *f.codes)
		}
		for k := range f.pieces {
			total += f.bytes(k)
		}
	}
	for _, s := range c.stretches {
		total += s.Len
	}
	var mu sync.Mutex
	done := int64(0)
	tell := func(n int64) {
		if progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		done += n
		progress(done, total)
	}
	pieces := 0
	if n := len(c.ends); n > 0 {
		pieces = c.ends[n-1]
	}
	return work.Each(ctx, c.workers, pieces+len(c.stretches), func(_ context.Context, b *buffers, i int) error {
		if i >= pieces {
			s := c.stretches[i-pieces]
			_, err := s.Copy(&b.raw, where(s.Content))
			tell(s.Len)
			return err
		}
		k := sort.SearchInts(c.ends, i+1)
		f := c.fills[k]
		piece := i - (c.ends[k] - f.pieces)
		err := f.make(b, sinks[k], piece)
		tell(f.bytes(piece))
		return err
	})
}

// comparer is a writer that compares what is written to it with the file.
type comparer struct {
	written io.ReaderAt
	name    string
	pool    sync.Pool
}

func (c *comparer) WriteAt(b []byte, off int64) (int, error) {
	buf, _ := c.pool.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer c.pool.Put(buf)
	have := buffer.Grow(buf, int64(len(b)))
	if err := buffer.ReadFull(c.written, have, off); err != nil {
		return 0, err
	}
	if !bytes.Equal(have, b) {
		return 0, fmt.Errorf("%w: %s differs from what was written", write.ErrVerify, msg.Quote(c.name))
	}
	return len(b), nil
}

// stretches cuts n elements into pieces of at most lazy.MaxRead.
func stretches(n int64) (pieces int, piece func(i int) (off, length int64)) {
	return int((n + lazy.MaxRead - 1) / lazy.MaxRead), func(i int) (int64, int64) {
		off := int64(i) * lazy.MaxRead
		return off, min(lazy.MaxRead, n-off)
	}
}

// squareSide is the side of the squares in which matrices are transposed.
const squareSide = 1024

// square is a part of a matrix: rows × cols elements from (row, col) on.
type square struct{ row, rows, col, cols int64 }

// squares cuts a matrix into parts of at most limit elements.
func squares(rows, cols, limit int64) []square {
	var list []square
	width := min(cols, squareSide)
	height := max(limit/max(width, 1), 1)
	for c := int64(0); c < cols; c += width {
		for r := int64(0); r < rows; r += height {
			list = append(list, square{r, min(height, rows-r), c, min(width, cols-c)})
		}
	}
	return list
}

// readSquare reads a part of a matrix with width columns.
func readSquare[T any](dst []T, s square, width int64, read func(dst []T, off int64) error) error {
	if s.cols == width {
		return read(dst, s.row*width)
	}
	for i := range s.rows {
		if err := read(dst[i*s.cols:(i+1)*s.cols], (s.row+i)*width+s.col); err != nil {
			return err
		}
	}
	return nil
}

// fillFloats adds a fill with the floats of a matrix rows × cols, or of its transpose.
func (r *rebuild) fillFloats(t *onnxpb.TensorProto, x *lazy.Tensor, rows, cols int64, transposed bool) {
	typ := dtype.DType(t.GetDataType())
	size := typ.Bits() / 8
	if !transposed {
		pieces, piece := stretches(rows * cols)
		r.fills = append(r.fills, fill{
			tensor: t, pieces: pieces,
			bytes: func(i int) int64 { _, n := piece(i); return n * size },
			make: func(b *buffers, to sink, i int) error {
				off, n := piece(i)
				dst := buffer.Grow(&b.x, n)
				if err := x.ReadAll(&b.arena, dst, off); err != nil {
					return err
				}
				raw := buffer.Grow(&b.raw, n*size)
				typ.Encode(raw, dst)
				_, err := to.WriteAt(raw, off*size)
				return err
			},
		})
		return
	}
	parts := squares(rows, cols, r.squareLimit())
	r.fills = append(r.fills, fill{
		tensor: t, pieces: len(parts),
		bytes: func(i int) int64 { return parts[i].rows * parts[i].cols * size },
		make: func(b *buffers, to sink, i int) error {
			s := parts[i]
			read := func(dst []float32, off int64) error { return x.ReadAll(&b.arena, dst, off) }
			if err := readSquare(buffer.Grow(&b.x, s.rows*s.cols), s, cols, read); err != nil {
				return err
			}
			transposed := buffer.Grow(&b.transposed, s.rows*s.cols)
			packing.Transpose(transposed, b.x, int(s.rows), int(s.cols))
			raw := buffer.Grow(&b.raw, s.rows*size)
			for c := range s.cols {
				typ.Encode(raw, transposed[c*s.rows:(c+1)*s.rows])
				if _, err := to.WriteAt(raw, ((s.col+c)*rows+s.row)*size); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// fillScales is fillFloats for scales, which may be codes themselves.
func (r *rebuild) fillScales(t *onnxpb.TensorProto, x *lazy.Tensor, rows, cols int64, transposed bool) {
	if x.DType.Float() {
		r.fillFloats(t, x, rows, cols, transposed)
	} else {
		r.fillCodes(t, tensorMatrix(x, rows, cols), 8, transposed, 0)
	}
}

// codeMatrix is a matrix of codes; read reads them from any offset on.
type codeMatrix struct {
	rows, cols int64
	read       func(a *lazy.Arena, codes []byte, off int64) error
}

func gridMatrix(g *lazy.Grid) codeMatrix { return codeMatrix{g.Rows, g.Cols, g.Read} }

// tensorMatrix reads a tensor whose elements are codes.
func tensorMatrix(x *lazy.Tensor, rows, cols int64) codeMatrix {
	return codeMatrix{rows, cols, func(a *lazy.Arena, codes []byte, off int64) error {
		v, release := a.Float32s(len(codes))
		defer release()
		if err := x.ReadAll(a, v, off); err != nil {
			return err
		}
		for i, c := range v {
			codes[i] = byte(int(c))
		}
		return nil
	}}
}

// less returns the matrix with middle subtracted from each code.
func (m codeMatrix) less(middle byte) codeMatrix {
	if middle == 0 {
		return m
	}
	return codeMatrix{m.rows, m.cols, func(a *lazy.Arena, codes []byte, off int64) error {
		if err := m.read(a, codes, off); err != nil {
			return err
		}
		for i := range codes {
			codes[i] -= middle
		}
		return nil
	}}
}

// fillCodes adds a fill with the codes of a matrix, or of its transpose. Rows of the tensor
// start pitch codes apart; 0: without padding.
func (r *rebuild) fillCodes(t *onnxpb.TensorProto, m codeMatrix, bits int, transposed bool, pitch int64) {
	at := packing.InOrder(m.rows, m.cols, 1)
	if transposed {
		at = packing.InOrder(m.cols, m.rows, 1)
	}
	if pitch != 0 {
		at.Pitch = pitch
	}
	bytes := func(n int64) int64 { return (n*int64(bits) + 7) / 8 }
	f := fill{tensor: t, codes: &packing.Codes{Bits: bits, Placement: at}}
	if !transposed && at.Pitch == at.K {
		pieces, piece := stretches(m.rows * m.cols)
		f.pieces = pieces
		f.bytes = func(i int) int64 { _, n := piece(i); return bytes(n) }
		f.make = func(b *buffers, to sink, i int) error {
			off, n := piece(i)
			codes := buffer.Grow(&b.codes, n)
			if err := m.read(&b.arena, codes, off); err != nil {
				return err
			}
			return to.codes.Write(buffer.Grow(&b.packed, n), codes, off, new(uint32))
		}
		r.fills = append(r.fills, f)
		return
	}
	parts := squares(m.rows, m.cols, r.squareLimit())
	f.pieces = len(parts)
	f.bytes = func(i int) int64 { return bytes(parts[i].rows * parts[i].cols) }
	f.make = func(b *buffers, to sink, i int) error {
		s := parts[i]
		codes := buffer.Grow(&b.codes, s.rows*s.cols)
		if err := readSquare(codes, s, m.cols, func(codes []byte, off int64) error { return m.read(&b.arena, codes, off) }); err != nil {
			return err
		}
		if transposed {
			codes = buffer.Grow(&b.stored, s.rows*s.cols)
			packing.Transpose(codes, b.codes, int(s.rows), int(s.cols))
			s = square{s.col, s.cols, s.row, s.rows}
		}
		for row := range s.rows {
			if err := to.codes.Write(buffer.Grow(&b.packed, s.cols), codes[row*s.cols:(row+1)*s.cols], (s.row+row)*at.Pitch+s.col, new(uint32)); err != nil {
				return err
			}
		}
		return nil
	}
	r.fills = append(r.fills, f)
}

// squareLimit is the number of elements that are transposed at once.
func (r *rebuild) squareLimit() int64 {
	_, limit := work.Divide(r.opts.Threads, r.opts.Memory, elementBytes)
	return min(limit, squareSide*squareSide)
}
