package quantize

import (
	"context"
	"hash/crc32"
	"io"
	"sync/atomic"

	"onnxquant/formats/errstat"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/packing"
	"onnxquant/quality"
)

// Run quantizes some weights. Several goroutines may quantize its tiles at once.
type Run struct {
	Weights []*Weight
	Tiles   []Tile

	limit   int64         // elements that a worker holds at once
	of      []int         // index of each tile's weight
	codecs  []Codec       // by weight; FindTensorScales adds the scale of the tensor
	tensors []float32     // by weight: scale of the scales, if any
	float16 []bool        // by weight: 8-bit scales are too coarse, float16 is needed
	broken  []atomic.Bool // by weight: it cannot be quantized
	spoiled atomic.Bool   // a weight is broken: the output will be discarded
	sinks   []sinks
	shared  []shared // by weight
}

// sinks take the parts of a weight.
type sinks struct {
	parts        Sinks
	codes, zeros *packing.Writer
}

// NewRun cuts weights into tiles of at most limit elements.
func NewRun(weights []*Weight, limit int64) *Run {
	r := &Run{
		Weights: weights, limit: limit,
		codecs: make([]Codec, len(weights)), tensors: make([]float32, len(weights)), float16: make([]bool, len(weights)),
		broken: make([]atomic.Bool, len(weights)), shared: make([]shared, len(weights)),
	}
	for i, w := range weights {
		r.codecs[i] = w.Codec
		most := limit
		if w.whole() && !w.fitsColumns() {
			most /= 2 // the tile is in memory twice
		}
		for t := range w.tiles(most) {
			r.shared[i].tiles++
			r.Tiles, r.of = append(r.Tiles, t), append(r.of, i)
		}
	}
	return r
}

// WriteTo sets the sinks of each weight.
func (r *Run) WriteTo(parts []Sinks) {
	r.sinks = make([]sinks, len(parts))
	for i, p := range parts {
		w, s := r.Weights[i], &r.sinks[i]
		s.parts = p
		if p.Codes != nil {
			s.codes = packing.NewWriter(p.Codes, packing.Codes{Bits: w.Bits, Placement: w.CodesAt})
		}
		if p.Zeros != nil && !w.FloatZeros {
			s.zeros = packing.NewWriter(p.Zeros, packing.Codes{Bits: w.Bits, Placement: w.ZerosAt})
		}
	}
}

// Outcome is the result of quantizing a tile.
type Outcome struct {
	Errors   errstat.Stats
	Vanished int64   // elements of blocks that became all 0
	Coarse   int64   // elements of coarse blocks: see Coarse
	Rounded  int64   // elements that became 0 when they were rounded: see Weight.Rounded
	Scale    float32 // the largest magnitude of a scale
	sum      uint32  // checksum of what was written: codes, scales, zero points
}

// Start is the offset of a tile's first element in the source, in bytes.
func (t Tile) Start() int64 {
	if t.n > 0 {
		return t.DType.Bytes(t.off)
	}
	first, _ := t.rows()
	return t.DType.Bytes(first*t.Inner + t.col)
}

// SourceBytes is the size of a tile's elements in the source.
func (t Tile) SourceBytes() int64 { return t.DType.Bytes(t.size()) }

// CodeBytes is the size of a tile's packed codes.
func (t Tile) CodeBytes() int64 { return (t.size()*int64(t.Bits) + 7) / 8 }

// spoil marks a weight as broken. The output will be discarded.
func (r *Run) spoil(weight int) {
	r.broken[weight].Store(true)
	r.spoiled.Store(true)
}

// Broken reports whether a weight has values that cannot be quantized, such as NaN.
func (r *Run) Broken(weight int) bool { return r.broken[weight].Load() }

// Spoiled reports whether any weight is broken. The output will then be discarded, and the run only
// looks for more broken weights.
func (r *Run) Spoiled() bool { return r.spoiled.Load() }

// Quantize turns a tile into codes, scales and zero points, and writes them. For a long tile it
// calls progress with the number of source bytes that are done.
func (r *Run) Quantize(ctx context.Context, b *Buffers, tile int, out *Outcome, progress func(bytes int64)) error {
	weight := r.of[tile]
	if r.Broken(weight) {
		return nil
	}
	finite, err := r.quantize(ctx, b, r.Tiles[tile], weight, out, progress)
	if !finite {
		r.spoil(weight)
	}
	return err
}

func (r *Run) quantize(ctx context.Context, b *Buffers, t Tile, weight int, out *Outcome, progress func(bytes int64)) (finite bool, err error) {
	if t.Encoding != nil {
		return r.quantizeBlocks(ctx, b, t, weight, out)
	}
	codec, chunks := r.codecs[weight], t.chunks(r.limit)
	if t.exact() {
		b.makeRoom(t)
	} else {
		if finite, err = t.findScales(ctx, b, codec, chunks); !finite || err != nil || r.Spoiled() {
			return finite, err
		}
		if err := t.narrowScales(ctx, b, codec, chunks); err != nil {
			return true, err
		}
	}
	to := &r.sinks[weight]
	for _, strip := range t.strips(r.limit) {
		bands, done := t.bands(strip, r.limit), 0
		if len(bands) > 1 {
			buffer.Grow(&b.gathered, strip.rows*strip.n)
		}
		err := t.eachChunk(ctx, b, bands, len(chunks) == 1, func(c chunk) error {
			b.away = 0
			errors, err := t.encode(ctx, b, codec, c, &r.shared[weight])
			if err != nil {
				return err
			}
			if finite = !t.exact() || kernels.IsFinite(kernels.AbsMax(0, b.x)); !finite {
				return errNotFinite
			}
			out.Errors.Merge(errors)
			out.Rounded += b.away
			if len(chunks) > 1 {
				progress(t.DType.Bytes(c.rows * c.n))
			}
			if len(bands) > 1 {
				done += copy(b.gathered[done:], b.codes)
			}
			return nil
		})
		if err == errNotFinite {
			return false, nil
		}
		if err != nil {
			return true, err
		}
		codes := b.codes
		if len(bands) > 1 {
			codes = b.gathered
		}
		if err := t.writeCodes(b, codes, strip, to, out); err != nil {
			return true, err
		}
	}
	out.Vanished = t.vanishedRanges(b, codec)
	if err := t.writeScales(b, codec, to, out); err != nil {
		return true, err
	}
	return true, t.writeMins(b, to, out)
}

// quantizeBlocks is quantize for a blockwise format.
func (r *Run) quantizeBlocks(ctx context.Context, b *Buffers, t Tile, weight int, out *Outcome) (finite bool, err error) {
	x, decoded, err := b.makeBlocks(ctx, t)
	if err != nil || decoded == nil {
		return false, err
	}
	out.Vanished = t.vanishedBlocks(x, decoded)
	if out.Coarse, err = b.coarseBlocks(t, x, decoded); err != nil {
		return true, err
	}
	b.away = 0
	if x, err = b.originalBlocks(t, x); err != nil {
		return true, err
	}
	out.Errors.Add(x, decoded)
	out.Rounded = b.away
	if r.Spoiled() {
		return true, nil
	}
	to := &r.sinks[weight]
	if err := t.writeCodes(b, b.codes, t.chunks(0)[0], to, out); err != nil {
		return true, err
	}
	if err := t.writeScales(b, nil, to, out); err != nil {
		return true, err
	}
	return true, t.writeDetails(b, to, out)
}

// Measure sums the errors of a tile. It writes nothing.
func (r *Run) Measure(ctx context.Context, b *Buffers, tile int, sums *quality.Sums) error {
	weight := r.of[tile]
	if r.Broken(weight) {
		return nil
	}
	finite, err := r.measure(ctx, b, r.Tiles[tile], weight, sums)
	if !finite {
		r.broken[weight].Store(true)
	}
	return err
}

func (r *Run) measure(ctx context.Context, b *Buffers, t Tile, weight int, sums *quality.Sums) (finite bool, err error) {
	codec := r.codecs[weight]
	if t.Encoding != nil {
		x, decoded, err := b.makeBlocks(ctx, t)
		if err != nil || decoded == nil {
			return false, err
		}
		if x, err = b.originalBlocks(t, x); err == nil {
			sums.Add(x, decoded)
		}
		return true, err
	}
	chunks := t.chunks(r.limit)
	if finite, err = t.findScales(ctx, b, codec, chunks); !finite || err != nil {
		return finite, err
	}
	if err := t.narrowScales(ctx, b, codec, chunks); err != nil {
		return true, err
	}
	return true, t.eachChunk(ctx, b, chunks, len(chunks) == 1, func(c chunk) error {
		if _, err := t.encode(ctx, b, codec, c, &r.shared[weight]); err != nil {
			return err
		}
		t.decode(b, codec, c)
		x, err := b.original(t, c)
		if err == nil {
			sums.Add(x, b.decoded)
		}
		return err
	})
}

// Read calls do with the elements of a tile as float32, one chunk at a time.
func (r *Run) Read(ctx context.Context, b *Buffers, tile int, do func(x []float32) error) error {
	t := r.Tiles[tile]
	for _, c := range t.chunks(r.limit) {
		if err := b.load(ctx, t, c); err != nil {
			return err
		}
		if err := do(b.x); err != nil {
			return err
		}
	}
	return nil
}

// Written reads a tile's parts from a file and reports whether they equal what Quantize wrote.
func (r *Run) Written(b *Buffers, tile int, out *Outcome, from Contents) (bool, error) {
	t := r.Tiles[tile]
	sum, err := uint32(0), error(nil)
	if from.Codes != nil {
		codes := packing.Codes{Bits: t.Bits, Placement: t.CodesAt}
		for _, strip := range t.strips(r.limit) {
			for p := range t.arranged(strip) {
				if sum, err = codes.SumRuns(sum, &b.packed, from.Codes, t.CodesAt.Runs(p.off, p.rows, p.n)); err != nil {
					return false, err
				}
			}
		}
	}
	if t.Given != nil {
		return sum == out.sum, nil
	}
	if sum, err = t.sumLikeScales(b, sum, from.Scales); err != nil {
		return false, err
	}
	switch {
	case t.FloatZeros:
		if sum, err = t.sumLikeScales(b, sum, from.Zeros); err != nil {
			return false, err
		}
	case from.Zeros != nil:
		rows, n := t.scaleGrid()
		zeros := packing.Codes{Bits: t.Bits, Placement: t.ZerosAt}
		if sum, err = zeros.SumRuns(sum, &b.packed, from.Zeros, t.ZerosAt.Runs(t.first, rows, n)); err != nil {
			return false, err
		}
	}
	if sum, err = t.sumMins(b, sum, from.Mins); err != nil {
		return false, err
	}
	sum, err = t.sumDetails(b, sum, from.Details)
	return err == nil && sum == out.sum, err
}

// sumLikeScales adds an array written by writeLikeScales to a checksum.
func (t Tile) sumLikeScales(b *Buffers, sum uint32, from io.ReaderAt) (uint32, error) {
	return t.sumArray(b, sum, from, t.ScaleType.Bits()/8)
}

// sumArray adds an array with one element of size bytes for each block to a checksum.
func (t Tile) sumArray(b *Buffers, sum uint32, from io.ReaderAt, size int64) (uint32, error) {
	rows, n := t.scaleGrid()
	raw := buffer.Grow(&b.scaleBytes, t.scales*size)
	for r := range t.ScalesAt.Runs(t.first, rows, n) {
		if err := buffer.ReadFull(from, raw[r.From*size:(r.From+r.N)*size], r.At*size); err != nil {
			return 0, err
		}
	}
	return crc32.Update(sum, packing.Castagnoli, raw), nil
}

// WeightOf is the index of a tile's weight.
func (r *Run) WeightOf(tile int) int { return r.of[tile] }
