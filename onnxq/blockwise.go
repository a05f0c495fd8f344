package onnxq

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// The blockwise formats are the encodings of package ggml that have a form of codes and
// scales. A block is made as a whole, along the reduction axis, and taken apart into
// tensors. With p elements to a part and b to a block:
//
//	codes        [k], INT or UINT of 2, 4 or 8 bits, the least that they fit in
//	scale, min   [k/b] FLOAT16
//	part_scale   [k/p] INT8 or UINT8, in nested forms
//	part_min     [k/p] UINT8
//
// A last block that is short is filled up with zeros, which are not stored.

// detail is a further tensor of a weight in a blockwise format, beside codes and scales:
// some bytes for each block or part.
type detail struct {
	*onnxpb.TensorProto
	at   stored
	size int64 // bytes of an element
	part int64 // elements of the weight for which there is one
}

// along is a shape with n elements along the blocks' axis, that of a scalar if that is
// all of it.
func (w *weight) along(n int64) []int64 {
	if len(w.view) == 1 && n == 1 {
		return nil // ONNX Runtime takes a single scale for that of the tensor
	}
	shape := slices.Clone(w.view)
	shape[w.d.choice.Axis] = n
	return shape
}

// partScale ends the name of the tensor of parts' scales.
const partScale = "_part_scale"

// detailed adds a detail of which there is one for so many elements.
func (w *weight) detailed(b *builder, name string, typ dtype.DType, part int64) *onnxpb.TensorProto {
	n := shapes.DivideUp(w.k, part)
	t := b.tensor(w.d.value.Name+name, typ, w.along(n))
	if name == partScale {
		w.partScale = t
	}
	at := stored{outer: w.outer, k: n, inner: w.inner, pitch: n}
	w.details = append(w.details, detail{t, at, typ.Bits() / 8, part})
	return t
}

// buildBlockwise adds what decodes blocks of a form:
//
//	scale ── Cast ── DequantizeLinear(part_scale) ──┐
//	                        codes ── DequantizeLinear ── Sub ── w
//	min ── Cast ── DequantizeLinear(part_min) ── Gather ──┘
//
// but for the parts if it is not nested, and for the min if it has none.
func (w *weight) buildBlockwise(b *builder) {
	f := w.encoding.Form
	block, part := int64(w.encoding.Elements), int64(f.Part)
	parts := shapes.DivideUp(w.k, part)
	w.codes = b.tensor(w.d.value.Name+w.d.choice.format.Traits().Suffix, w.codeType(), w.view)
	w.scale = b.tensor(w.d.value.Name+"_scale", dtype.Float16, w.along(w.blocks))
	if f.Values != nil {
		w.buildLookup(b, w.scale.GetName(), dtype.Float16)
		return
	}
	ofParts := func(t *onnxpb.TensorProto, name string, codes dtype.DType) string {
		value := b.value(t.GetName(), "Cast", []string{t.GetName()}, intAttr("to", int64(dtype.Float32)))
		if !f.Nested {
			return value
		}
		c := w.detailed(b, name, codes, part)
		return b.value(c.GetName(), "DequantizeLinear", []string{c.GetName(), value}, w.spreadOver(w.blocks, block/part)...)
	}
	scaleCodes := dtype.Uint8
	if f.Signed {
		scaleCodes = dtype.Int8
	}
	inputs := []string{w.codes.GetName(), ofParts(w.scale, partScale, scaleCodes)}
	if !f.Mins {
		b.result(w, dtype.Float32, "DequantizeLinear", inputs, w.spreadOver(parts, part)...)
		return
	}
	value := b.value(w.d.value.Name, "DequantizeLinear", inputs, w.spreadOver(parts, part)...)
	least := ofParts(w.detailed(b, "_min", dtype.Float16, block), "_part_min", dtype.Uint8)
	if parts > 1 { // a single one is spread by Sub itself
		least = b.value(least, "Gather", []string{least, b.blockIndex(w.k, part)}, intAttr("axis", int64(w.d.choice.Axis)))
	}
	b.result(w, dtype.Float32, "Sub", []string{value, least})
}

// spreadOver says in attributes that each of n scales belongs to a block of so many.
func (w *weight) spreadOver(n, block int64) []*onnxpb.AttributeProto {
	if len(w.view) == 1 && n == 1 {
		return nil
	}
	return []*onnxpb.AttributeProto{intAttr("axis", int64(w.d.choice.Axis)), intAttr("block_size", block)}
}

// blockIndex returns the name of a constant that holds the number of each element's
// block.
func (b *builder) blockIndex(k, block int64) string {
	var raw []byte
	for i := range k {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(i/block))
	}
	return b.constant(fmt.Sprintf("blocks_of_%d", block), dtype.Int32, []int64{k}, raw)
}

// blockBuffers are what a worker needs for blocks. Blocks of a tile follow one another,
// those of one row of it, or of one column.
type blockBuffers struct {
	x, padded, decoded []float32
	importance, turned []float32
	packed             []byte
	parts              ggml.Parts
	turnedCodes        []byte
}

// lengths yields the elements of each of a tile's blocks.
func (t tile) lengths() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := range t.scales {
			b := t.first + i
			switch {
			case t.inner > 1 && t.d.importance != nil:
				b = i // columns are whole
			case t.inner > 1:
				b = t.slab + i/t.width
			}
			if !yield(min(t.block, t.k-b%t.blocks*t.block)) {
				return
			}
		}
	}
}

// quantizeBlocks turns one tile into the codes and all else that blocks are made of. It
// reports whether all of that is finite.
func (e *executor) quantizeBlocks(b *buffers, t tile, out *outcome) (finite bool, err error) {
	x, decoded, err := b.makeBlocks(t)
	if err != nil || decoded == nil {
		return false, err
	}
	out.errors.Add(x, decoded)
	if e.spoiled.Load() {
		return true, nil // only in search of other weights that are broken
	}
	c := t.chunks(0)[0]
	if err := e.codes[t.weight].writeRuns(b, b.storedCodes(t, c), t.codesAt.runs(c.off, c.rows, c.n), &out.sum); err != nil {
		return true, err
	}
	if err := e.writeScales(b, t, out); err != nil {
		return true, err
	}
	return true, e.writeDetails(b, t, out)
}

// makeBlocks makes the blocks of a tile. It returns the elements, block by block, and
// what has become of them: nil if anything is not finite.
func (b *buffers) makeBlocks(t tile) (x, decoded []float32, err error) {
	if err := b.load(t, t.chunks(0)[0]); err != nil || !kernels.IsFinite(kernels.AbsMax(0, b.x)) {
		return nil, nil, err
	}
	return b.encodeBlocks(t)
}

// encodeBlocks makes blocks of the elements that are loaded, and takes them apart. Codes
// are then as the elements were, b.scale holds the blocks' scales.
func (b *buffers) encodeBlocks(t tile) (x, decoded []float32, err error) {
	s, e := &b.blocks, t.encoding
	f := e.Form
	block, part := t.block, int64(f.Part)
	n := t.scales * block
	x = b.x
	if t.inner > 1 {
		x = buffer.Grow(&s.x, int64(len(b.x)))
		t.eachSlab(func(at, rows int64) { transpose(x[at:], b.x[at:], int(rows), int(t.width)) })
	}
	padded := pad(&s.padded, x, t, block)
	columns := n // blocks one after another
	var importance []float32
	if t.d.importance != nil {
		columns = t.blocks * block
		importance = buffer.Grow(&s.importance, columns)
		clear(importance[copy(importance, t.d.importance):])
	}
	if err := b.encode(e, buffer.Grow(&s.packed, t.scales*int64(e.Bytes)), padded, int(columns), importance); err != nil {
		return nil, nil, err
	}
	p := &s.parts
	buffer.Grow(&p.Codes, n)
	buffer.Grow(&p.Scales, t.scales)
	buffer.Grow(&p.Mins, t.scales)
	clear(p.Mins)
	buffer.Grow(&p.PartScales, n/part)
	buffer.Grow(&p.PartMins, n/part)
	f.Split(*p, s.packed)
	if !kernels.IsFinite(kernels.AbsMax(kernels.AbsMax(0, p.Scales), p.Mins)) {
		return nil, nil, nil
	}
	b.scale = append(b.scale[:0], inOrder(t, &s.turned, p.Scales, block)...)

	decoded = buffer.Grow(&s.decoded, n)
	if err := e.Dequantize(decoded, s.packed, int(n), 1); err != nil {
		return nil, nil, err
	}
	decoded = trim(decoded, t, block, 1)
	t.plainType().RoundAll(decoded)

	codes := trim(p.Codes, t, block, 1)
	p.PartScales, p.PartMins = trim(p.PartScales, t, block/part, part), trim(p.PartMins, t, block/part, part)
	b.q = append(b.q[:0], inOrder(t, &s.turnedCodes, codes, 1)...)
	return x, decoded, nil
}

// inOrder brings what there is one for so many elements of into the order of the tile's
// elements, from that of the blocks.
func inOrder[T any](t tile, buf *[]T, x []T, part int64) []T {
	if t.inner == 1 {
		return x
	}
	ordered, at := buffer.Grow(buf, int64(len(x))), int64(0)
	t.eachSlab(func(_, rows int64) {
		n := shapes.DivideUp(rows, part)
		transpose(ordered[at:], x[at:], int(t.width), int(n))
		at += n * t.width
	})
	return ordered
}

// eachSlab calls do with the first element and the rows of each of a tile's slabs. Those
// of whole columns count as one.
func (t tile) eachSlab(do func(at, rows int64)) {
	if t.d.importance != nil {
		do(0, t.k)
		return
	}
	at := int64(0)
	for i := range t.slabs {
		first, last := t.slabRows(t.slab + i)
		do(at, last-first)
		at += (last - first) * t.width
	}
}

// pad fills blocks up with zeros to n elements.
func pad(buf *[]float32, x []float32, t tile, n int64) []float32 {
	if int64(len(x)) == t.scales*n {
		return x
	}
	padded := buffer.Grow(buf, t.scales*n)
	clear(padded)
	to := padded
	for length := range t.lengths() {
		copy(to, x[:length])
		x, to = x[length:], to[n:]
	}
	return padded
}

// trim is the inverse of pad, in place, of what there is one for so many elements of.
func trim[T any](padded []T, t tile, n, part int64) []T {
	to, from := int64(0), int64(0)
	for length := range t.lengths() {
		count := shapes.DivideUp(length, part)
		if to < from {
			copy(padded[to:], padded[from:from+count])
		}
		to, from = to+count, from+n
	}
	return padded[:to]
}

// writeDetails writes what blocks have beside codes and scales.
func (e *executor) writeDetails(b *buffers, t tile, out *outcome) error {
	for _, d := range t.details {
		raw := b.detail(t, d)
		out.sum = crc32.Update(out.sum, castagnoli, raw)
		for r := range t.detailRuns(d) {
			if _, err := e.sinks[d.TensorProto].WriteAt(raw[r.from*d.size:(r.from+r.n)*d.size], r.at*d.size); err != nil {
				return err
			}
		}
	}
	return nil
}

// detail returns a detail of a tile's blocks as it is stored.
func (b *buffers) detail(t tile, d detail) []byte {
	p := &b.blocks.parts
	switch {
	case d.size == 2:
		raw := buffer.Grow(&b.raw, 2*t.scales)[:0]
		for _, v := range inOrder(t, &b.blocks.turned, p.Mins, d.part) {
			raw = binary.LittleEndian.AppendUint16(raw, dtype.Float16Bits(v))
		}
		return raw
	case d.TensorProto == t.partScale:
		return inOrder(t, &b.blocks.turnedCodes, p.PartScales, d.part)
	}
	return inOrder(t, &b.blocks.turnedCodes, p.PartMins, d.part)
}

// detailRuns yields where a detail of a tile's blocks lies.
func (t tile) detailRuns(d detail) iter.Seq[run] {
	per := t.block / d.part
	if t.inner == 1 {
		first := t.first/t.blocks*d.at.k + t.first%t.blocks*per
		n := int64(0)
		for length := range t.lengths() {
			n += shapes.DivideUp(length, d.part)
		}
		return d.at.runs(first, 1, n)
	}
	rows := int64(0)
	t.eachSlab(func(_, n int64) { rows += shapes.DivideUp(n, d.part) })
	first := t.slab/t.blocks*d.at.k + t.slab%t.blocks*per
	return d.at.runs(first*t.inner+t.col, rows, t.width)
}

// readDetails sums up the details of a tile, as writeDetails did.
func (e *executor) readDetails(b *buffers, t tile, sum uint32, payloads map[*onnxpb.TensorProto]*modelfile.Payload) (uint32, error) {
	for _, d := range t.details {
		for r := range t.detailRuns(d) {
			raw := buffer.Grow(&b.raw, r.n*d.size)
			if err := buffer.ReadFull(payloads[d.TensorProto], raw, r.at*d.size); err != nil {
				return 0, err
			}
			sum = crc32.Update(sum, castagnoli, raw)
		}
	}
	return sum, nil
}
