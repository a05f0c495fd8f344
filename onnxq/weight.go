package onnxq

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/spec"
)

// weight is a tensor to be quantized and everything known beforehand about the
// outcome. It is seen as [outer, k, inner]: blocks run along k.
type weight struct {
	d               *decision
	codec           codec          // nil in the blockwise formats,
	encoding        *ggml.Encoding // nil in the others
	view            []int64        // the shape, or what stands for it where axes count as one
	outer, k, inner int64
	block           int64 // elements of a block; k if there is one for all of it
	blocks          int64 // along k
	perAxis         bool  // one scale per channel: a vector, without block_size

	// Where codes, scales and zero points lie in their tensors.
	codesAt, scalesAt, zerosAt stored
	offset                     bool     // codes are stored plus half their range
	decoder                    *builder // made already, in the style nbits
	output                     string   // what it decodes to, if not the weight's own name

	src     *modelfile.Payload
	planned int // index among the plan's tensors

	// What the weight becomes. There may be no zero points, and a scale of the
	// whole tensor only in the two-level formats.
	codes, scale, zero, whole *onnxpb.TensorProto
	details                   []detail            // in the blockwise formats
	partScale                 *onnxpb.TensorProto // one of them
}

func newWeight(d *decision, src *modelfile.Payload) (*weight, error) {
	w := &weight{d: d, src: src, view: d.choice.View, outer: 1, inner: 1, encoding: d.choice.format.Encoding()}
	w.k = w.view[d.choice.Axis]
	for i, n := range w.view {
		switch {
		case i < d.choice.Axis:
			w.outer *= n
		case i > d.choice.Axis:
			w.inner *= n
		}
	}
	w.block = int64(d.choice.block)
	if d.choice.block == spec.PerChannel {
		w.block, w.perAxis = w.k, len(w.view) <= 2 && !w.tabled()
	}
	w.blocks = (w.k-1)/w.block + 1
	if len(w.view) == 1 && w.blocks == 1 && !w.tabled() && w.encoding == nil {
		w.perAxis = true // ONNX Runtime takes a single scale for that of the tensor
	}
	w.store()
	if w.encoding != nil {
		return w, nil
	}
	w.codec = w.newCodec()
	return w, w.codec.Validate()
}

// store settles where codes, scales and zero points lie.
func (w *weight) store() {
	w.codesAt = stored{outer: w.outer, k: w.k, inner: w.inner, pitch: w.k}
	w.scalesAt = stored{outer: w.outer, k: w.blocks, inner: w.inner, pitch: w.blocks}
	w.zerosAt = w.scalesAt
	if w.d.choice.style != spec.NBits {
		return
	}
	w.offset = w.signed()
	if w.d.choice.nbits.product {
		w.codesAt.pitch = w.blocks * w.d.choice.nbits.block
	}
	per := int64(8 / w.bits())
	w.zerosAt.pitch = (w.blocks + per - 1) / per * per
	turned := w.inner > 1
	w.codesAt.turned, w.scalesAt.turned, w.zerosAt.turned = turned, turned, turned
}

// elements is their number.
func (w *weight) elements() int64 { return w.outer * w.k * w.inner }

// bits is the size of a code.
func (w *weight) bits() int { return w.d.choice.format.Bits() }

// signed tells whether codes are two's complement.
func (w *weight) signed() bool { return w.d.choice.format.Signed() }

// plainType is the type of scales that have no type of their own: that of the
// weight. ONNX has no float64 scales; there, the decoded weight is float32 and a
// Cast follows.
func (w *weight) plainType() dtype.DType {
	if w.d.dtype == dtype.Float64 {
		return dtype.Float32
	}
	return w.d.dtype
}

// scaleType is the type of the scales as they are stored.
func (w *weight) scaleType() dtype.DType {
	switch w.d.choice.format.Traits().Family {
	case spec.TwoLevel:
		return dtype.Float8E4M3FN
	case spec.Microscaling:
		return dtype.Float8E8M0
	case spec.Blockwise:
		if w.d.choice.style != spec.NBits {
			return dtype.Float16
		}
	}
	return w.plainType()
}

// scaleShape is the shape of scales and zero points.
func (w *weight) scaleShape() []int64 {
	var shape []int64
	for i, n := range w.view {
		switch {
		case i != w.d.choice.Axis:
			shape = append(shape, n)
		case !w.perAxis:
			shape = append(shape, w.blocks)
		}
	}
	return shape
}

// written lists the tensors that the weight becomes.
func (w *weight) written() []*onnxpb.TensorProto {
	list := []*onnxpb.TensorProto{w.codes, w.scale, w.zero, w.whole}
	for _, d := range w.details {
		list = append(list, d.TensorProto)
	}
	return slices.DeleteFunc(list, func(t *onnxpb.TensorProto) bool { return t == nil })
}

// size is what the weight takes once quantized.
func (w *weight) size() int64 {
	n := int64(0)
	for _, t := range w.written() {
		n += graph.SizeOf(t)
	}
	return n
}

// defectInORT tells whether ONNX Runtime 1.31 fuses the weight with the MatMul
// that reads it and then computes garbage.
func (w *weight) defectInORT() bool {
	return w.d.choice.style == spec.DQ && w.bits() == 2 && len(w.view) == 2 && slices.Equal(w.view, w.d.shape) && w.d.choice.Axis == 0 && w.inner%4 != 0 && len(w.d.value.Uses) == 1
}
