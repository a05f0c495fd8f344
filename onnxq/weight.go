package onnxq

import (
	"onnxquant/int4"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/quantutil"
)

// weight is a tensor to be quantized and everything known beforehand about the
// outcome. It is seen as [outer, k, inner]: blocks run along k.
type weight struct {
	*decision
	codec           codec
	outer, k, inner int64
	block           int64 // elements of a block; k if there is one for all of it
	blocks          int64 // along k
	perAxis         bool  // one scale per channel: a vector, without block_size

	src     *modelfile.Payload
	planned int // index among the plan's tensors

	// What the weight becomes. There may be no zero points.
	codes, scale, zero *onnxpb.TensorProto
}

func newWeight(d *decision, src *modelfile.Payload) (*weight, error) {
	w := &weight{decision: d, src: src, outer: 1, k: d.shape[d.choice.axis], inner: 1}
	for i, n := range d.shape {
		switch {
		case i < d.choice.axis:
			w.outer *= n
		case i > d.choice.axis:
			w.inner *= n
		}
	}
	w.block = int64(d.choice.block)
	if d.choice.block == PerChannel {
		w.block, w.perAxis = w.k, len(d.shape) <= 2
	}
	w.blocks = (w.k-1)/w.block + 1
	w.codec = int4.Codec{
		Bits:      w.bits(),
		Signed:    w.signed(),
		ZeroPoint: d.choice.zeroPoint,
		Type:      scaleTypes[d.dtype].codec,
	}
	return w, w.codec.Validate()
}

// bits is the size of a code.
func (w *weight) bits() int { return w.choice.format.Bits() }

// signed tells whether codes are two's complement.
func (w *weight) signed() bool { return w.choice.format.Signed() }

// scaleTypes gives the type of the scales for weights of a type. ONNX has no
// float64 scales: there, DequantizeLinear makes float32 and a Cast follows.
var scaleTypes = map[modelfile.DType]struct {
	onnx  modelfile.DType
	codec quantutil.DType
}{
	modelfile.Float32:  {modelfile.Float32, quantutil.Float32},
	modelfile.Float64:  {modelfile.Float32, quantutil.Float32},
	modelfile.Float16:  {modelfile.Float16, quantutil.Float16},
	modelfile.BFloat16: {modelfile.BFloat16, quantutil.BFloat16},
}

// codeTypes gives the ONNX type of a format's codes and the ending that the
// reference gives the names of such tensors.
var codeTypes = map[Format]struct {
	dtype  modelfile.DType
	suffix string
}{
	Int2:  {modelfile.Int2, "_i2"},
	Uint2: {modelfile.Uint2, "_u2"},
	Int4:  {modelfile.Int4, "_i4"},
	Uint4: {modelfile.Uint4, "_u4"},
	Int8:  {modelfile.Int8, "_i8"},
	Uint8: {modelfile.Uint8, "_u8"},
}

// scaleShape is the shape of scales and zero points.
func (w *weight) scaleShape() []int64 {
	var shape []int64
	for i, n := range w.shape {
		switch {
		case i != w.choice.axis:
			shape = append(shape, n)
		case !w.perAxis:
			shape = append(shape, w.blocks)
		}
	}
	return shape
}

// sizeOf returns the bytes of a tensor's content.
func sizeOf(t *onnxpb.TensorProto) int64 {
	if t == nil {
		return 0
	}
	n, _ := modelfile.Elements(t.GetDims())
	return modelfile.DType(t.GetDataType()).Bytes(n)
}

// size is what the weight takes once quantized.
func (w *weight) size() int64 { return sizeOf(w.codes) + sizeOf(w.scale) + sizeOf(w.zero) }
