package onnxq

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// verify opens what was written, before it takes the place of the output. It
// checks the structure and every tensor's size, and compares codes, scales and
// zero points, and what was copied, with those that the errors in the report
// were measured on.
func (e *executor) verify(ctx context.Context) error {
	m, payloads, err := e.conv.to.out.reopen(e.target)
	if err != nil {
		return err
	}
	defer m.Close()
	for w, scale := range e.wholes {
		var raw [4]byte
		if err := buffer.ReadFull(payloads[w.whole], raw[:], 0); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(raw[:]) != math.Float32bits(scale) {
			return fmt.Errorf("%w: the scale of %s differs from what was written", ErrVerify, msg.Quote(w.d.value.Path))
		}
	}
	return eachTask(ctx, e.conv.workers, len(e.tasks), func(b *buffers, i int) error {
		sum, name, err := e.readBack(b, &e.tasks[i], payloads)
		if err != nil {
			return err
		}
		if sum != e.outcomes[i].sum {
			return fmt.Errorf("%w: %s differs from what was written", ErrVerify, msg.Quote(name))
		}
		e.progress(e.tasks[i].written())
		return nil
	})
}

// readBack sums up what a task wrote, as the task itself did.
func (e *executor) readBack(b *buffers, t *task, payloads map[*onnxpb.TensorProto]*modelfile.Payload) (uint32, string, error) {
	if t.tile.weight == nil {
		tensor := e.conv.to.out.tensors[t.stretch.content]
		buf := buffer.Grow(&b.raw, t.stretch.len)
		err := buffer.ReadFull(payloads[tensor], buf, t.stretch.start)
		return crc32.Checksum(buf, castagnoli), tensor.GetName(), err
	}
	sum := uint32(0)
	w := t.tile.weight
	for _, c := range t.tile.chunks(e.conv.limit) {
		if w.codes == nil {
			break
		}
		var err error
		if sum, err = b.sumRuns(sum, payloads[w.codes], packing{w.bits(), w.codesAt}, w.codesAt.runs(c.off, c.rows, c.n)); err != nil {
			return 0, w.d.value.Path, err
		}
	}
	rows, n := t.tile.scaleGrid()
	elem := dtype.DType(w.scale.GetDataType()).Bits() / 8
	raw := buffer.Grow(&b.raw, t.tile.scales*elem)
	for r := range w.scalesAt.runs(t.tile.first, rows, n) {
		if err := buffer.ReadFull(payloads[w.scale], raw[r.from*elem:(r.from+r.n)*elem], r.at*elem); err != nil {
			return 0, w.d.value.Path, err
		}
	}
	sum = crc32.Update(sum, castagnoli, raw)
	if w.zero != nil {
		var err error
		if sum, err = b.sumRuns(sum, payloads[w.zero], packing{w.bits(), w.zerosAt}, w.zerosAt.runs(t.tile.first, rows, n)); err != nil {
			return 0, w.d.value.Path, err
		}
	}
	sum, err := e.readDetails(b, t.tile, sum, payloads)
	return sum, w.d.value.Path, err
}

// sumRuns sums up packed codes, each run where it lies.
func (b *buffers) sumRuns(sum uint32, r io.ReaderAt, p packing, runs iter.Seq[run]) (uint32, error) {
	for piece := range runs {
		var err error
		if sum, err = p.sumUp(sum, &b.packed, r, piece.at, piece.n); err != nil {
			return 0, err
		}
	}
	return sum, nil
}
