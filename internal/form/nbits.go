package form

import (
	"onnxquant/formats/dtype"
	"onnxquant/spec"
)

// buildNBits adds the tensors that MatMulNBits, GatherBlockQuantized, QMoE and MatMulBnb4 read. It
// returns the name of the scales, too.
func (w *Weight) buildNBits(b *Builder) (t Tensors, scale string) {
	if w.bnb4() {
		t.Codes = b.Tensor(w.Name+w.Choice.Format.Traits().Suffix, dtype.Uint8, []int64{w.Elements() / 2})
		t.Scales = b.Tensor(w.Name+"_absmax", w.scaleType(), []int64{w.Outer * w.Inner * w.Blocks})
		return t, t.Scales.GetName()
	}
	f, rows, size := w.Choice.NBits, w.Outer*w.Inner, int64(w.Choice.Format.Bits())
	codes, blocks := []int64{rows, w.Blocks, f.Block * size / 8}, []int64{rows, w.Blocks}
	if !f.Product {
		lead := w.Shape[:len(w.Shape)-1]
		codes, blocks = append(lead[:len(lead):len(lead)], w.K*size/8), append(lead[:len(lead):len(lead)], w.Blocks)
	}
	if f.Experts && f.Block == 0 {
		blocks = blocks[:len(blocks)-1]
	}
	typ, suffix := dtype.Uint8, w.Choice.Format.Traits().Suffix
	if w.Choice.Format.FloatCodes() {
		typ, codes = w.codeType(), w.Shape
	} else {
		suffix = Suffix(w.codeType())
	}
	t.Codes = b.Tensor(w.Name+suffix, typ, codes)
	t.Scales = b.Tensor(w.Name+"_scale", w.scaleType(), blocks)
	switch {
	case f.FloatZeros:
		t.Zeros = b.Tensor(w.Name+"_zp", w.scaleType(), blocks)
	case w.hasZeroPoints():
		last := len(blocks) - 1
		packed := append(blocks[:last:last], (blocks[last]*size+7)/8)
		t.Zeros = b.Tensor(w.Name+"_zp", dtype.Uint8, packed)
	}
	if w.Choice.Mins {
		t.Mins = b.Tensor(w.Name+"_min", dtype.Float32, []int64{rows, w.Blocks})
	}
	d := building{Builder: b, w: w, tensors: t}
	scale, _ = d.scale()
	return d.tensors, scale
}

// Suffix is what the name of a tensor of integer codes ends in.
func Suffix(t dtype.DType) string { return IntegerFormats[t].Traits().Suffix }

// IntegerFormats maps the type of integer codes to their format.
var IntegerFormats = map[dtype.DType]spec.Format{
	dtype.Int2: spec.Int2, dtype.Uint2: spec.Uint2, dtype.Int4: spec.Int4, dtype.Uint4: spec.Uint4, dtype.Int8: spec.Int8, dtype.Uint8: spec.Uint8,
}
