package onnxq

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
)

// GGUFReport tells what was written.
type GGUFReport struct {
	Plan    *GGUFPlan     `json:"plan"`
	Tensors []GGUFQuality `json:"tensors"` // the written ones
	Output  string        `json:"output"`
	Elapsed time.Duration `json:"elapsed_ns"`
}

// GGUFQuality adds to a tensor's plan how well what was written stands for its values.
type GGUFQuality struct {
	GGUFTensor
	MaxError float64 `json:"max_error"` // largest |w - decoded w|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"` // 10·log10(mean w² / MSE); 999 stands for exact
}

// ggufBytes is an upper bound of the memory of buffers for an element: as it is in the
// model, the same transposed or as float32, encoded, and decoded.
const ggufBytes = 4 + 4 + 4 + 4

// Write writes the file out, which appears whole or not at all, after what was written
// was read again. Rows are read, encoded and written in tiles, by several workers; the
// bytes do not depend on how many. It fails where a weight holds values that its type
// has not.
func (p *GGUFPlan) Write(ctx context.Context, out string) (*GGUFReport, error) {
	start := time.Now()
	target, err := modelfile.CreateTarget(ctx, out, p.model.file, false)
	if err != nil {
		return nil, err
	}
	defer target.Abort()
	w := newGGUFWriter(p, target)
	err = w.run(ctx)
	if changed := p.model.file.Unchanged(); changed != nil {
		return nil, changed
	}
	if err == nil {
		err = w.verify(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", out, err)
	}
	if err := target.Commit(nil); err != nil {
		return nil, err
	}
	return &GGUFReport{Plan: p, Tensors: w.qualities(), Output: out, Elapsed: time.Since(start)}, nil
}

// CheckOutput tells whether the plan can be carried out to the file out, as far as can
// be said without writing.
func (p *GGUFPlan) CheckOutput(out string) error {
	return modelfile.CheckTarget(out, p.model.file, false)
}

// ggufTile is a part of a tensor that a worker encodes at a time: some rows, all of
// one outer index if they are transposed, or a part of one row.
type ggufTile struct {
	*ggufWeight
	index     int // of the tensor in the file
	row, rows int64
	at, n     int64 // elements of each row
}

// ggufWriter carries a plan out.
type ggufWriter struct {
	*GGUFPlan
	target  *modelfile.Target
	workers int
	tiles   []ggufTile
	sums    []uint32 // of what each tile has written
	errors  []errstat.Stats

	mu          sync.Mutex
	done, total int64
}

func newGGUFWriter(p *GGUFPlan, target *modelfile.Target) *ggufWriter {
	w := &ggufWriter{GGUFPlan: p, target: target}
	var limit int64
	w.workers, limit = workers(p.opts.Threads, p.opts.Memory*elementBytes/ggufBytes)
	for i, t := range p.weights {
		w.tiles = t.appendTiles(w.tiles, i, limit)
		w.total += graph.SizeOf(t.Tensor)
	}
	w.sums = make([]uint32, len(w.tiles))
	w.errors = make([]errstat.Stats, len(w.tiles))
	return w
}

// tileStep is a multiple of all blocks: a row that is cut is cut there.
const tileStep = 4 << 10

// appendTiles cuts a tensor into tiles of at most limit elements. Rows stay whole if
// columns have an importance, because some encodings then look at all of a row.
func (g *ggufWeight) appendTiles(tiles []ggufTile, index int, limit int64) []ggufTile {
	n := g.k
	if g.k > limit && g.importance == nil {
		n = limit / tileStep * tileStep
	}
	together := g.rows() // that may be in a tile
	switch {
	case int64(len(g.importance)) > g.k:
		together = g.matrix() // each has an importance of its own
	case g.transposed():
		together = g.inner
	}
	step := min(max(limit/n, 1), together)
	for first := int64(0); first < g.rows(); first += together {
		for row := first; row < first+together; row += step {
			for at := int64(0); at < g.k; at += n {
				tiles = append(tiles, ggufTile{g, index, row, min(step, first+together-row), at, min(n, g.k-at)})
			}
		}
	}
	return tiles
}

func (w *ggufWriter) run(ctx context.Context) error {
	if err := w.layout.WriteHead(w.target.Model); err != nil {
		return err
	}
	return eachTask(ctx, w.workers, len(w.tiles), func(b *buffers, i int) error {
		t := w.tiles[i]
		if err := w.write(b, t, i); err != nil {
			return fmt.Errorf("tensor %s: %w", msg.Quote(t.Path), err)
		}
		w.progress(t)
		return nil
	})
}

func (w *ggufWriter) progress(t ggufTile) {
	if w.opts.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += t.dtype.Bytes(t.rows * t.n)
	w.opts.Progress(w.done, w.total)
}

// write encodes and writes one tile.
func (w *ggufWriter) write(b *buffers, t ggufTile, i int) error {
	raw, err := t.load(b)
	if err != nil {
		return err
	}
	if !t.verbatim {
		if raw, err = t.encode(b, raw, &w.errors[i]); err != nil {
			return err
		}
	}
	w.sums[i] = crc32.Checksum(raw, castagnoli)
	return t.eachRun(raw, func(part []byte, off int64) error {
		_, err := w.layout.Content(w.target.Model, t.index).WriteAt(part, off)
		return err
	})
}

// load reads the elements of a tile in the order of the file.
func (t ggufTile) load(b *buffers) ([]byte, error) {
	size := t.dtype.Bits() / 8
	raw := buffer.Grow(&b.raw, t.rows*t.n*size)
	if !t.transposed() {
		return raw, buffer.ReadFull(t.src, raw, (t.row*t.k+t.at)*size)
	}
	o, c := t.row/t.inner, t.row%t.inner
	off := (o*t.k+t.at)*t.inner + c
	if err := t.src.ReadRows(raw, off*size, t.n, t.rows*size, t.inner*size); err != nil {
		return nil, err
	}
	turned := buffer.Grow(&b.turned, t.rows*t.n*size)
	transposeBytes(turned, raw, int(t.n), int(t.rows), int(size))
	return turned, nil
}

// encode encodes elements as they are in the model, and measures how far what was
// encoded is from them.
func (t ggufTile) encode(b *buffers, raw []byte, errors *errstat.Stats) ([]byte, error) {
	x := buffer.Grow(&b.x, t.rows*t.n)
	t.dtype.Decode(x, raw)
	if t.dtype == dtype.Float64 {
		for i, v := range x {
			if v64 := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])); math.IsInf(float64(v), 0) && !math.IsInf(v64, 0) {
				return nil, fmt.Errorf("it holds %v, beyond float32; F64 keeps it (--tensor-type)", v64)
			}
		}
	}
	size := t.n / int64(t.encoding.Elements) * int64(t.encoding.Bytes)
	packed := buffer.Grow(&b.packed, t.rows*size)
	if err := b.encode(t.encoding, packed, x, int(t.n), t.importanceOf(t.row)); err != nil {
		if !kernels.IsFinite(kernels.AbsMax(0, x)) {
			return nil, fmt.Errorf("it holds NaN or infinity; a float type keeps them (--tensor-type)")
		}
		return nil, err
	}
	decoded := buffer.Grow(&b.decoded, t.rows*t.n)
	if err := t.encoding.Dequantize(decoded, packed, int(t.n), 1); err != nil {
		return nil, err
	}
	for i, v := range decoded {
		if !kernels.IsFinite(v) && kernels.IsFinite(x[i]) {
			return nil, fmt.Errorf("it holds %v, more than %v can; F32 or BF16 keep it (--tensor-type)", x[i], t.encoding)
		}
	}
	errors.Add(x, decoded)
	return packed, nil
}

// encode encodes rows as e.Quantize does, some at a time because searches take long.
// Without an importance rows are blocks one after another.
func (b *buffers) encode(e *ggml.Encoding, dst []byte, x []float32, columns int, importance []float32) error {
	const some = 1 << 16 // elements
	if importance == nil {
		columns = max(some/e.Elements, 1) * e.Elements
	}
	step := max(some/columns, 1) * columns
	for at := 0; at < len(x); at += step {
		if err := b.stopped(); err != nil {
			return err
		}
		x := x[at:min(at+step, len(x))]
		from, size := at/e.Elements*e.Bytes, len(x)/e.Elements*e.Bytes
		if err := e.Quantize(dst[from:from+size], x, min(columns, len(x)), importance, 1); err != nil {
			return err
		}
	}
	return nil
}

// importanceOf returns that of the columns of a row.
func (g *ggufWeight) importanceOf(row int64) []float32 {
	if int64(len(g.importance)) <= g.k {
		return g.importance
	}
	return g.importance[row/g.matrix()*g.k:][:g.k]
}

// eachRun calls do for the parts of a tile that are neighbours in the file, with their
// offsets in the content.
func (t ggufTile) eachRun(packed []byte, do func(part []byte, off int64) error) error {
	elements, bytes := int64(1), t.dtype.Bits()/8
	if !t.verbatim {
		elements, bytes = int64(t.encoding.Elements), int64(t.encoding.Bytes)
	}
	off := (t.row*t.k + t.at) / elements * bytes
	if t.n == t.k {
		return do(packed, off)
	}
	n := t.n / elements * bytes
	for part := range slices.Chunk(packed, int(n)) {
		if err := do(part, off); err != nil {
			return err
		}
		off += t.k / elements * bytes
	}
	return nil
}

// verify reads the file again and compares it with what was written.
func (w *ggufWriter) verify(ctx context.Context) error {
	f, err := gguf.Read(w.target.Model, w.OutBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVerify, err)
	}
	for i, t := range w.layout.Tensors {
		if got := f.Tensors[i]; got.Name != t.Name || got.Type != t.Type || got.Offset != t.Offset || !slices.Equal(got.Shape, t.Shape) {
			return fmt.Errorf("%w: tensor %s is not as it was planned", ErrVerify, msg.Quote(t.Name))
		}
	}
	return eachTask(ctx, w.workers, len(w.tiles), func(b *buffers, i int) error {
		t := w.tiles[i]
		content := f.Content(&f.Tensors[t.index])
		packed := buffer.Grow(&b.packed, t.bytes())
		err := t.eachRun(packed, func(part []byte, off int64) error { return buffer.ReadFull(content, part, off) })
		if err != nil && err != io.EOF {
			return err
		}
		if crc32.Checksum(packed, castagnoli) != w.sums[i] {
			return fmt.Errorf("%w: %s differs from what was written", ErrVerify, msg.Quote(t.Path))
		}
		return nil
	})
}

// bytes is the size of a tile in the file.
func (t ggufTile) bytes() int64 {
	if t.verbatim {
		return t.dtype.Bytes(t.rows * t.n)
	}
	return t.rows * t.n / int64(t.encoding.Elements) * int64(t.encoding.Bytes)
}

// qualities tells how well each tensor stands for its values.
func (w *ggufWriter) qualities() []GGUFQuality {
	sums := make([]errstat.Stats, len(w.weights))
	for i, t := range w.tiles {
		sums[t.index].Merge(w.errors[i])
	}
	var all []GGUFQuality
	for i, g := range w.weights {
		s := sums[i]
		all = append(all, GGUFQuality{w.Tensors[g.planned], s.MaxAbs, s.MSE(), min(s.SQNR(), exact)})
	}
	return all
}

// transposeBytes turns rows × n elements of size bytes into n × rows.
func transposeBytes(dst, src []byte, rows, n, size int) {
	switch size {
	case 2:
		transpose(cells[[2]byte](dst), cells[[2]byte](src), rows, n)
	case 4:
		transpose(cells[[4]byte](dst), cells[[4]byte](src), rows, n)
	case 8:
		transpose(cells[[8]byte](dst), cells[[8]byte](src), rows, n)
	}
}

// cells sees bytes as elements of a type that is made of bytes.
func cells[T [2]byte | [4]byte | [8]byte](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/len(t))
}
