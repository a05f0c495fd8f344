package ggufmodel

import (
	"context"
	"encoding/binary"
	"errors"
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
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/commit"
	"onnxquant/internal/kernels"
	"onnxquant/internal/msg"
	"onnxquant/internal/packing"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
)

// Report describes a written file.
type Report struct {
	Plan     *Plan          `json:"plan"`
	Tensors  []TensorReport `json:"tensors"`            // the written ones
	Warnings []string       `json:"warnings,omitempty"` // about values; the plan has its own warnings
	Output   string         `json:"output"`
	Replaced bool           `json:"replaced,omitempty"` // there was a file at Output
	Elapsed  time.Duration  `json:"elapsed_ns"`
}

// TensorReport is the plan of a tensor with its errors.
type TensorReport struct {
	Tensor
	MaxError float64 `json:"max_error"` // max |w - decoded w|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"` // 10·log10(mean w² / MSE); 999 if exact
}

// elementBytes bounds the memory of buffers per element: as in the model, transposed or as
// float32, encoded, and decoded.
const elementBytes = 4 + 4 + 4 + 4

// buffers are the buffers of one worker.
type buffers struct {
	raw        []byte    // elements as in the model
	transposed []byte    // the same in file order
	x          []float32 // the same as float32
	packed     []byte    // encoded
	decoded    []float32 // decoded again
	coarse     quantize.Coarse
}

// Write writes the file out and reads it again to verify it. The file appears complete or not
// at all. Rows are read, encoded and written in tiles by several workers; the output does not
// depend on their number. A value that the type cannot represent is an error.
func (p *Plan) Write(ctx context.Context, out string) (*Report, error) {
	if err := errors.Join(work.CheckContext(ctx), p.made()); err != nil {
		return nil, err
	}
	start := time.Now()
	w, replaced := newWriter(p), commit.Exists(out)
	if err := (write.File{Path: out, Model: p.graph.File}).Write(ctx, w); err != nil {
		return nil, err
	}
	return &Report{Plan: p, Tensors: w.qualities(), Warnings: w.warnings(), Output: out, Replaced: replaced, Elapsed: time.Since(start)}, nil
}

// CheckOutput checks, without writing, whether the output may have the name out.
func (p *Plan) CheckOutput(out string) error {
	if err := p.made(); err != nil {
		return err
	}
	return commit.Check(out, p.graph.File, nil)
}

// made returns an error for a plan that is not one of NewPlan.
func (p *Plan) made() error {
	if p == nil || p.graph == nil {
		return errors.New("the plan was not made by NewPlan")
	}
	return nil
}

// tile is the part of a tensor that a worker encodes at a time: some rows or a part of one
// row. Transposed rows are all of one outer index.
type tile struct {
	w         *weight
	index     int // of the tensor in the file
	row, rows int64
	at, n     int64 // range of elements in each row
}

// writer implements write.Content for a plan.
type writer struct {
	plan    *Plan
	workers int
	tiles   []tile
	sums    []uint32        // by tile: checksum of the written bytes
	errors  []errstat.Stats // by tile
	lost    []losses        // by tile

	mu          sync.Mutex
	done, total int64
}

// losses count elements that are too small for their type.
type losses struct {
	gone   int64 // of blocks that became 0 as a whole
	coarse int64 // elements of blocks whose scales have few bits, with much larger errors for that reason
}

func newWriter(p *Plan) *writer {
	w := &writer{plan: p}
	var limit int64
	w.workers, limit = work.Divide(p.opts.Threads, p.opts.Memory, elementBytes)
	for i, t := range p.weights {
		w.tiles = t.appendTiles(w.tiles, i, limit)
		w.total += t.dtype.Bytes(t.rows() * t.k)
	}
	w.sums = make([]uint32, len(w.tiles))
	w.errors = make([]errstat.Stats, len(w.tiles))
	w.lost = make([]losses, len(w.tiles))
	return w
}

// tileStep is a multiple of all block sizes, where rows may be cut.
const tileStep = 4 << 10

// appendTiles cuts a tensor into tiles of at most limit elements. With importance, rows are
// not cut, because some encodings look at a whole row.
func (g *weight) appendTiles(tiles []tile, index int, limit int64) []tile {
	n := g.k
	if g.k > limit && g.importance == nil {
		n = limit / tileStep * tileStep
	}
	together := g.rows() // rows that may share a tile
	switch {
	case int64(len(g.importance)) > g.k:
		together = g.matrix() // each matrix has its own importance
	case g.transposed():
		together = g.inner
	}
	step := min(max(limit/n, 1), together)
	for first := int64(0); first < g.rows(); first += together {
		for row := first; row < first+together; row += step {
			for at := int64(0); at < g.k; at += n {
				tiles = append(tiles, tile{g, index, row, min(step, first+together-row), at, min(n, g.k-at)})
			}
		}
	}
	return tiles
}

// Write implements write.Content.
func (w *writer) Write(ctx context.Context, target *commit.Target) error {
	if err := w.plan.layout.WriteHead(target.Model); err != nil {
		return err
	}
	return work.Each(ctx, w.workers, len(w.tiles), func(ctx context.Context, b *buffers, i int) error {
		t := w.tiles[i]
		if err := w.write(ctx, b, t, i, w.plan.layout.Content(target.Model, t.index)); err != nil {
			return fmt.Errorf("tensor %s: %w", msg.Quote(t.w.path), err)
		}
		w.progress(t)
		return nil
	})
}

func (w *writer) progress(t tile) {
	if w.plan.opts.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += t.w.dtype.Bytes(t.rows * t.n)
	w.plan.opts.Progress(w.done, w.total)
}

// write encodes and writes one tile.
func (w *writer) write(ctx context.Context, b *buffers, t tile, i int, to io.WriterAt) error {
	raw, err := t.load(b)
	if err != nil {
		return err
	}
	if !t.w.verbatim {
		if raw, err = t.encode(ctx, b, raw, &w.errors[i], &w.lost[i]); err != nil {
			return err
		}
	}
	w.sums[i] = crc32.Checksum(raw, packing.Castagnoli)
	return t.eachRun(raw, func(part []byte, off int64) error {
		_, err := to.WriteAt(part, off)
		return err
	})
}

// load reads the elements of a tile in the order of the file.
func (t tile) load(b *buffers) ([]byte, error) {
	size := t.w.dtype.Bits() / 8
	raw := buffer.Grow(&b.raw, t.rows*t.n*size)
	if !t.w.transposed() {
		return raw, buffer.ReadFull(t.w.src, raw, (t.row*t.w.k+t.at)*size)
	}
	o, c := t.row/t.w.inner, t.row%t.w.inner
	off := (o*t.w.k+t.at)*t.w.inner + c
	if err := t.w.src.ReadRows(raw, off*size, t.n, t.rows*size, t.w.inner*size); err != nil {
		return nil, err
	}
	transposed := buffer.Grow(&b.transposed, t.rows*t.n*size)
	transposeBytes(transposed, raw, int(t.n), int(t.rows), int(size))
	return transposed, nil
}

// encode encodes the elements of a tile, adds up their errors and counts losses.
func (t tile) encode(ctx context.Context, b *buffers, raw []byte, errors *errstat.Stats, lost *losses) ([]byte, error) {
	x := buffer.Grow(&b.x, t.rows*t.n)
	t.w.dtype.Decode(x, raw)
	if t.w.dtype == dtype.Float64 {
		for i, v := range x {
			if v64 := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])); math.IsInf(float64(v), 0) && !math.IsInf(v64, 0) {
				return nil, fmt.Errorf("it holds %v, beyond float32; F64 keeps it (--tensor-type)", v64)
			}
		}
	}
	size := t.n / int64(t.w.encoding.Elements) * int64(t.w.encoding.Bytes)
	packed := buffer.Grow(&b.packed, t.rows*size)
	importance := t.w.importanceOf(t.row)
	if err := quantize.EncodeRows(ctx, t.w.encoding, packed, x, int(t.n), importance); err != nil {
		if !kernels.IsFinite(kernels.AbsMax(0, x)) {
			return nil, fmt.Errorf("it holds NaN or infinity; a float type keeps them (--tensor-type)")
		}
		return nil, err
	}
	decoded := buffer.Grow(&b.decoded, t.rows*t.n)
	if err := t.w.encoding.Dequantize(decoded, packed, int(t.n), 1); err != nil {
		return nil, err
	}
	for i, v := range decoded {
		if !kernels.IsFinite(v) && kernels.IsFinite(x[i]) {
			return nil, fmt.Errorf("it holds %v, more than %v can; F32 or BF16 keep it (--tensor-type)", x[i], t.w.encoding)
		}
	}
	errors.Add(x, decoded)
	lost.gone = quantize.Vanished(x, decoded, t.w.encoding.Elements)
	var err error
	lost.coarse, err = b.coarse.Count(t.w.encoding, packed, x, decoded, importance)
	return packed, err
}

// importanceOf returns the importance of the columns for a row.
func (g *weight) importanceOf(row int64) []float32 {
	if int64(len(g.importance)) <= g.k {
		return g.importance
	}
	return g.importance[row/g.matrix()*g.k:][:g.k]
}

// eachRun calls do for each part of a tile that is contiguous in the file, with the part's offset in
// the tensor.
func (t tile) eachRun(packed []byte, do func(part []byte, off int64) error) error {
	elements, bytes := int64(1), t.w.dtype.Bits()/8
	if !t.w.verbatim {
		elements, bytes = int64(t.w.encoding.Elements), int64(t.w.encoding.Bytes)
	}
	off := (t.row*t.w.k + t.at) / elements * bytes
	if t.n == t.w.k {
		return do(packed, off)
	}
	n := t.n / elements * bytes
	for part := range slices.Chunk(packed, int(n)) {
		if err := do(part, off); err != nil {
			return err
		}
		off += t.w.k / elements * bytes
	}
	return nil
}

// Verify implements write.Content. It compares the structure and checksums of contents.
func (w *writer) Verify(ctx context.Context, target *commit.Target) error {
	f, err := gguf.Read(target.Model, w.plan.OutBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", write.ErrVerify, err)
	}
	if len(f.Tensors) != len(w.plan.layout.Tensors) {
		return fmt.Errorf("%w: it holds %d tensors, not %d", write.ErrVerify, len(f.Tensors), len(w.plan.layout.Tensors))
	}
	for i, t := range w.plan.layout.Tensors {
		if got := f.Tensors[i]; got.Name != t.Name || got.Type != t.Type || got.Offset != t.Offset || !slices.Equal(got.Shape, t.Shape) {
			return fmt.Errorf("%w: tensor %s is not as it was planned", write.ErrVerify, msg.Quote(t.Name))
		}
	}
	return work.Each(ctx, w.workers, len(w.tiles), func(_ context.Context, b *buffers, i int) error {
		t := w.tiles[i]
		content := f.Content(&f.Tensors[t.index])
		packed := buffer.Grow(&b.packed, t.bytes())
		err := t.eachRun(packed, func(part []byte, off int64) error { return buffer.ReadFull(content, part, off) })
		if err != nil && err != io.EOF {
			return err
		}
		if crc32.Checksum(packed, packing.Castagnoli) != w.sums[i] {
			return fmt.Errorf("%w: %s differs from what was written", write.ErrVerify, msg.Quote(t.w.path))
		}
		return nil
	})
}

// bytes is the size of a tile in the file.
func (t tile) bytes() int64 {
	if t.w.verbatim {
		return t.w.dtype.Bytes(t.rows * t.n)
	}
	return t.rows * t.n / int64(t.w.encoding.Elements) * int64(t.w.encoding.Bytes)
}

// qualities returns the report of each tensor.
func (w *writer) qualities() []TensorReport {
	sums := make([]errstat.Stats, len(w.plan.weights))
	for i, t := range w.tiles {
		sums[t.index].Merge(w.errors[i])
	}
	var all []TensorReport
	for i, g := range w.plan.weights {
		s := sums[i]
		all = append(all, TensorReport{w.plan.Tensors[g.planned], s.MaxAbs, s.MSE(), min(s.SQNR(), errstat.Exact)})
	}
	return all
}

// few is the share of a tensor that may be lost without a warning: trained models have some rows near
// 0.
const few = 0.01

// warnings names the tensors of which a part became 0, or was distorted as its scales have few bits.
func (w *writer) warnings() (all []string) {
	lost := make([]losses, len(w.plan.weights))
	for i, t := range w.tiles {
		lost[t.index].gone += w.lost[i].gone
		lost[t.index].coarse += w.lost[i].coarse
	}
	for i, g := range w.plan.weights {
		name, size := msg.Quote(g.path), float64(g.rows()*g.k)
		if share := float64(lost[i].gone) / size; share > few {
			all = append(all, fmt.Sprintf("%s: %.3g%% of its elements became 0: they are too small for %s", name, 100*share, g.encoding))
		}
		if share := float64(lost[i].coarse) / size; share > few {
			all = append(all, fmt.Sprintf("%s: %.3g%% of its elements lose precision: they are so small that the float16 scales of %s have few bits; F32 or BF16 keep them (--tensor-type)", name, 100*share, g.encoding))
		}
	}
	return all
}

// transposeBytes transposes rows × n elements of size bytes.
func transposeBytes(dst, src []byte, rows, n, size int) {
	switch size {
	case 2:
		packing.Transpose(cells[[2]byte](dst), cells[[2]byte](src), rows, n)
	case 4:
		packing.Transpose(cells[[4]byte](dst), cells[[4]byte](src), rows, n)
	case 8:
		packing.Transpose(cells[[8]byte](dst), cells[[8]byte](src), rows, n)
	}
}

// cells converts a slice of bytes to one of byte arrays, without copying.
func cells[T [2]byte | [4]byte | [8]byte](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/len(t))
}
