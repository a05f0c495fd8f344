package onnxq

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// outcome is what a task found out. Outcomes are merged in the order of tasks,
// so that sums do not depend on the number of workers.
type outcome struct {
	errors errstat.Stats
	sum    uint32 // of what was written: codes, scales, zero points
	told   int64  // bytes that are in the progress already, of a task that takes long
}

// executor carries a conversion out.
type executor struct {
	conv   *conversion
	target *modelfile.Target

	sinks    map[*onnxpb.TensorProto]sink
	codes    map[*weight]*packedWriter
	zeros    map[*weight]*packedWriter
	wholes   map[*weight]float32 // scales of whole tensors
	broken   map[*weight]*atomic.Bool
	tasks    []task
	outcomes []outcome

	spoiled atomic.Bool // some weight is broken: what is written is of no use

	mu          sync.Mutex
	done, total int64 // bytes worked on, for the caller
}

// newExecutor prepares to write a conversion to a target. Before bytes have been
// worked on in earlier attempts.
func newExecutor(c *conversion, target *modelfile.Target, before int64) *executor {
	e := &executor{
		conv:   c,
		target: target,
		codes:  map[*weight]*packedWriter{},
		zeros:  map[*weight]*packedWriter{},
		wholes: map[*weight]float32{},
		broken: map[*weight]*atomic.Bool{},
		done:   before,
		total:  before,
	}
	for _, w := range c.to.weights {
		e.broken[w] = &atomic.Bool{}
	}
	e.tasks = c.work()
	for _, t := range e.tasks {
		e.total += t.cost()
		if t.tile.weight != nil && t.tile.whole != nil {
			e.total += t.cost() // a pass of its own
		}
		if !c.opts.NoVerify {
			e.total += t.written()
		}
	}
	e.outcomes = make([]outcome, len(e.tasks))
	return e
}

// begin writes the structure and finds the places of the weights' parts.
func (e *executor) begin() (err error) {
	if e.sinks, err = e.conv.to.out.begin(e.target); err != nil {
		return err
	}
	for _, w := range e.conv.to.weights {
		if w.codes != nil {
			e.codes[w] = &packedWriter{w: e.sinks[w.codes], packing: packing{w.bits(), w.codesAt}}
		}
		if w.zero != nil {
			e.zeros[w] = &packedWriter{w: e.sinks[w.zero], packing: packing{w.bits(), w.zerosAt}}
		}
	}
	return nil
}

// run does all tasks. It returns the weights that cannot be quantized after all,
// with the reasons; the target is then of no use.
func (e *executor) run(ctx context.Context) (map[*onnxpb.TensorProto]string, error) {
	if err := e.begin(); err != nil {
		return nil, err
	}
	if err := e.scaleWholes(ctx); err != nil {
		return nil, err
	}
	err := eachTask(ctx, e.conv.workers, len(e.tasks), func(b *buffers, i int) error {
		t := &e.tasks[i]
		defer func() { e.progress(t.cost() - e.outcomes[i].told) }()
		if t.tile.weight == nil {
			return e.copy(b, t.stretch, &e.outcomes[i])
		}
		if e.broken[t.tile.weight].Load() {
			return nil
		}
		finite, err := e.quantize(b, t.tile, &e.outcomes[i])
		if !finite {
			e.broken[t.tile.weight].Store(true)
			e.spoiled.Store(true)
		}
		return err
	})
	return e.unfit(), err
}

// scaleWholes finds and writes the scales of those tensors that have one for the
// whole.
func (e *executor) scaleWholes(ctx context.Context) error {
	if err := e.findWholes(ctx); err != nil {
		return err
	}
	for w, scale := range e.wholes {
		if _, err := e.sinks[w.whole].WriteAt(binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale)), 0); err != nil {
			return err
		}
	}
	return nil
}

// findWholes finds the scales of whole tensors, in a pass of its own over them.
func (e *executor) findWholes(ctx context.Context) error {
	var tasks []task
	for _, t := range e.tasks {
		if t.tile.weight != nil && t.tile.whole != nil {
			tasks = append(tasks, t)
		}
	}
	peaks := make([]float32, len(tasks))
	err := eachTask(ctx, e.conv.workers, len(tasks), func(b *buffers, i int) error {
		t := &tasks[i]
		defer e.progress(t.cost())
		for _, c := range t.tile.chunks(e.conv.limit) {
			if err := b.load(t.tile, c); err != nil {
				return err
			}
			t.tile.codec.ObserveBlocks(nil, peaks[i:i+1], b.x, len(b.x), len(b.x))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, t := range tasks {
		peaks[i] = max(peaks[i], e.wholes[t.tile.weight]) // NaN stays NaN
		e.wholes[t.tile.weight] = peaks[i]
	}
	for w, peak := range e.wholes {
		scale, err := w.rescale(peak)
		if err != nil {
			e.broken[w].Store(true)
			e.spoiled.Store(true)
			continue
		}
		e.wholes[w] = scale
	}
	return nil
}

// unfit tells which weights cannot be quantized after all, and why.
func (e *executor) unfit() map[*onnxpb.TensorProto]string {
	reasons := map[*onnxpb.TensorProto]string{}
	for w, s := range e.sums() {
		switch {
		case e.broken[w].Load() && w.d.dtype == dtype.Float64:
			reasons[w.d.value.Tensor] = reasonHuge
		case e.broken[w].Load() && w.encoding != nil:
			reasons[w.d.value.Tensor] = reasonBeyond
		case e.broken[w].Load():
			reasons[w.d.value.Tensor] = reasonBroken
		case !e.spoiled.Load() && s.SumSq > 0 && s.SumSqErr >= s.SumSq:
			reasons[w.d.value.Tensor] = reasonLost
		}
	}
	return reasons
}

// sums merges the errors of each weight's tiles, in their order.
func (e *executor) sums() map[*weight]*errstat.Stats {
	sums := map[*weight]*errstat.Stats{}
	for i, t := range e.tasks {
		if t.tile.weight == nil {
			continue
		}
		s := sums[t.tile.weight]
		if s == nil {
			s = &errstat.Stats{}
			sums[t.tile.weight] = s
		}
		s.Merge(e.outcomes[i].errors)
	}
	return sums
}

// progress tells the caller that more bytes have been worked on.
func (e *executor) progress(bytes int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done += bytes
	if e.conv.opts.Progress != nil {
		e.conv.opts.Progress(e.done, e.total)
	}
}

// copy copies a stretch of an unchanged tensor.
func (e *executor) copy(b *buffers, s stretch, out *outcome) error {
	if e.spoiled.Load() {
		return nil
	}
	buf := buffer.Grow(&b.raw, s.len)
	if err := buffer.ReadFull(e.conv.to.out.contents[s.content].copy, buf, s.start); err != nil {
		return err
	}
	out.sum = crc32.Checksum(buf, castagnoli)
	_, err := e.sinks[e.conv.to.out.tensors[s.content]].WriteAt(buf, s.start)
	return err
}

// findScales finds the scales of a tile's blocks, which it leaves in memory if it is one
// chunk. It reports whether all elements are finite.
func (t tile) findScales(b *buffers, chunks []chunk) (finite bool, err error) {
	b.prepare(t)
	for _, c := range chunks {
		if err := b.load(t, c); err != nil {
			return true, err
		}
		t.observe(b, c)
	}
	return t.codec.Scales(b.scale, b.zero, b.lo, b.hi), nil
}

// quantize turns one tile into codes, scales and zero points. It reports whether
// all elements are finite, as they must be for that.
func (e *executor) quantize(b *buffers, t tile, out *outcome) (finite bool, err error) {
	if t.encoding != nil {
		return e.quantizeBlocks(b, t, out)
	}
	chunks := t.chunks(e.conv.limit)
	if finite, err = t.findScales(b, chunks); !finite || err != nil {
		return finite, err
	}
	if e.spoiled.Load() {
		return true, nil // only in search of other weights that are broken
	}
	if err := t.narrow(b, chunks); err != nil {
		return true, err
	}
	t.codec.Scales(b.scale, b.zero, b.lo, b.hi)
	for _, c := range chunks {
		if len(chunks) > 1 {
			if err := b.load(t, c); err != nil {
				return true, err
			}
		}
		out.errors.Merge(t.quantize(b, c))
		if e.codes[t.weight] != nil {
			codes := b.storedCodes(t, c)
			if err := e.codes[t.weight].writeRuns(b, codes, t.codesAt.runs(c.off, c.rows, c.n), &out.sum); err != nil {
				return true, err
			}
		}
		if len(chunks) > 1 {
			n := t.d.dtype.Bytes(c.rows * c.n)
			out.told += n
			e.progress(n)
		}
	}
	return true, e.writeScales(b, t, out)
}

// writeScales writes the scales and zero points of a tile.
func (e *executor) writeScales(b *buffers, t tile, out *outcome) error {
	rows, n := t.scaleGrid()
	raw := b.encodeScales(t, arrange(t.scalesAt, &b.turnedScale, b.scale, rows, n))
	out.sum = crc32.Update(out.sum, castagnoli, raw)
	elem := int64(len(raw)) / t.scales
	for r := range t.scalesAt.runs(t.first, rows, n) {
		if _, err := e.sinks[t.weight.scale].WriteAt(raw[r.from*elem:(r.from+r.n)*elem], r.at*elem); err != nil {
			return err
		}
	}
	z := e.zeros[t.weight]
	if z == nil {
		return nil
	}
	zero := arrange(t.zerosAt, &b.turned, b.zero, rows, n)
	return z.writeRuns(b, zero, t.zerosAt.runs(t.first, rows, n), &out.sum)
}

// writeRuns packs and writes codes, each run where it lies.
func (p *packedWriter) writeRuns(b *buffers, q []byte, runs iter.Seq[run], sum *uint32) error {
	packed := buffer.Grow(&b.packed, int64(len(q)))
	for r := range runs {
		if err := p.write(packed, q[r.from:r.from+r.n], r.at, sum); err != nil {
			return err
		}
	}
	return nil
}
