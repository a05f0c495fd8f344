package onnxq

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// buildNBits adds the tensors that the operators read.
func (w *weight) buildNBits(b *builder) {
	f, rows, size := w.d.choice.nbits, w.outer*w.inner, int64(w.bits())
	uint8s := dtype.DType(onnxpb.TensorProto_UINT8)
	codes, blocks := []int64{rows, w.blocks, f.block * size / 8}, []int64{rows, w.blocks}
	if !f.product {
		lead := w.d.shape[:len(w.d.shape)-1]
		codes, blocks = append(lead[:len(lead):len(lead)], w.k*size/8), append(lead[:len(lead):len(lead)], w.blocks)
	}
	w.codes = b.tensor(w.d.value.Name+suffixOf(w.codeType()), uint8s, codes)
	w.scale = b.tensor(w.d.value.Name+"_scale", w.scaleType(), blocks)
	if w.codec != nil && w.codec.HasZeroPoints() {
		packed := append(blocks[:len(blocks)-1:len(blocks)-1], (w.blocks*size+7)/8)
		w.zero = b.tensor(w.d.value.Name+"_zp", uint8s, packed)
	}
}
