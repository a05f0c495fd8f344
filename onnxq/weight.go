package onnxq

import (
	"fmt"

	"onnxquant/int4"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/quantutil"
)

// weight is a tensor to be quantized and everything known beforehand about the
// outcome. It is seen as [outer, k, inner]: blocks run along k.
type weight struct {
	*decision
	codec           int4.Codec
	outer, k, inner int64
	block           int64 // elements of a block; k if there is one for all of it
	blocks          int64 // along k
	perAxis         bool  // one scale per channel: a vector, without block_size

	src     *modelfile.Payload
	planned int // index among the plan's tensors

	codes, scale, zero *onnxpb.TensorProto // zero is nil where there are no zero points
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
		Bits:      d.choice.format.Bits(),
		Signed:    d.choice.format.Signed(),
		ZeroPoint: d.choice.zeroPoint,
		Type:      scaleTypes[d.dtype].codec,
	}
	return w, w.codec.Validate()
}

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

// opset is the least one whose DequantizeLinear decodes the weight.
func (w *weight) opset() int64 {
	switch {
	case w.codec.Bits == 2:
		return 25
	case w.codec.Bits == 4 || !w.perAxis:
		return 21
	case w.dtype == modelfile.Float16 || w.dtype == modelfile.BFloat16:
		return 19
	}
	return 13
}

// tensors makes the initializers that replace the weight, contents apart.
func (w *weight) tensors(fresh func(string) string) []*onnxpb.TensorProto {
	code := codeTypes[w.choice.format]
	w.codes = newTensor(fresh(w.name+code.suffix), code.dtype, w.shape)
	w.scale = newTensor(fresh(w.name+"_scale"), scaleTypes[w.dtype].onnx, w.scaleShape())
	if !w.codec.HasZeroPoints() {
		return []*onnxpb.TensorProto{w.codes, w.scale}
	}
	w.zero = newTensor(fresh(w.name+"_zp"), code.dtype, w.scaleShape())
	return []*onnxpb.TensorProto{w.codes, w.scale, w.zero}
}

// nodes makes the nodes that decode the weight and give the result its name.
func (w *weight) nodes(domain string, fresh func(string) string) []*onnxpb.NodeProto {
	dq := &onnxpb.NodeProto{
		OpType: ptr("DequantizeLinear"),
		Name:   ptr(fresh(w.name + "_DequantizeLinear")),
		Input:  []string{w.codes.GetName(), w.scale.GetName()},
		Output: []string{w.name},
	}
	if domain != "" {
		dq.Domain = &domain
	}
	if w.zero != nil {
		dq.Input = append(dq.Input, w.zero.GetName())
	}
	switch {
	case !w.perAxis:
		dq.Attribute = []*onnxpb.AttributeProto{intAttr("axis", int64(w.choice.axis)), intAttr("block_size", w.block)}
	case len(w.shape) == 2:
		dq.Attribute = []*onnxpb.AttributeProto{intAttr("axis", int64(1-w.choice.axis))}
	}
	if w.dtype != modelfile.Float64 {
		return []*onnxpb.NodeProto{dq}
	}
	dq.Output[0] = fresh(w.name + "_DequantizeLinear_Output")
	return []*onnxpb.NodeProto{dq, {
		OpType:    ptr("Cast"),
		Name:      ptr(fresh(w.name + "_Cast")),
		Domain:    dq.Domain,
		Input:     []string{dq.Output[0]},
		Output:    []string{w.name},
		Attribute: []*onnxpb.AttributeProto{intAttr("to", int64(modelfile.Float64))},
	}}
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

// describeBlock says how scales are shared.
func (w *weight) describeBlock() string {
	if w.choice.block == PerChannel {
		return "per channel"
	}
	return fmt.Sprintf("block %d", w.block)
}

func newTensor(name string, dtype modelfile.DType, shape []int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: ptr(int32(dtype)), Dims: shape}
}

func intAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}

func ptr[T any](v T) *T { return &v }
