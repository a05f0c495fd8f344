package onnxq

import (
	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/int4"
	"onnxquant/nvfp4"
	"onnxquant/onnxq/spec"
)

// codec turns elements into codes and back. Package int4 tells what its methods
// do; those of the other number packages do the same for theirs. A symmetric
// format makes no use of lo and zero.
type codec interface {
	Validate() error
	HasZeroPoints() bool

	// A range pass over all elements of a block …
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)

	// … gives its scale, as a float32 of the value that is stored …
	Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool)

	// … and that the codes, one a byte.
	EncodeColumns(q []byte, x, scale []float32, zero []byte)
	EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int)
	DecodeColumns(x []float32, q []byte, scale []float32, zero []byte)
	DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int)
}

// measurer is a codec that encodes and measures the errors in one go.
type measurer interface {
	QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats
	QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats
}

// newCodec returns the codec of the weight's format.
func (w *weight) newCodec() codec {
	values := w.plainType()
	switch f := w.d.choice.format; f.Traits().Family {
	case spec.Float8:
		return fp8.Codec{Format: map[spec.Format]fp8.Format{spec.FP8E4M3: fp8.E4M3FN, spec.FP8E5M2: fp8.E5M2}[f], Type: values}
	case spec.Microscaling:
		return mx.Codec{
			Format: map[spec.Format]mx.Format{spec.MXFP4: mx.MXFP4, spec.MXFP8: mx.MXFP8E4M3, spec.MXFP8E5M2: mx.MXFP8E5M2}[f],
			Rule:   map[spec.ScaleRule]mx.Rule{spec.RuleOCP: mx.OCP, spec.RuleCeil: mx.Reference}[w.d.choice.rule],
			Type:   values,
		}
	case spec.Lookup:
		return qlora.Codec{Table: qloraTables[f], Type: values}
	case spec.TwoLevel:
		return nvfp4.Codec{TensorScale: 1, Type: values} // until rescaled
	default:
		return int4.Codec{Bits: f.Bits(), Signed: f.Signed(), ZeroPoint: w.d.choice.zeroPoint, Type: values}
	}
}

var qloraTables = map[spec.Format]qlora.Table{spec.NF4: qlora.NF4, spec.FP4: qlora.FP4}

// rescale gives the codec the scale of the whole tensor, whose greatest
// magnitude is amax, and returns that scale.
func (w *weight) rescale(amax float32) (scale float32, err error) {
	c := w.codec.(nvfp4.Codec)
	c.TensorScale, err = nvfp4.TensorScale(amax)
	w.codec = c
	return c.TensorScale, err
}

// scaleBytes sets dst to the bytes that stand for scales of an eight-bit type.
func scaleBytes(dst []byte, typ dtype.DType, scales []float32) {
	if typ != dtype.Float8E8M0 {
		nvfp4.ScaleBytes(dst, scales)
		return
	}
	for i, s := range scales {
		dst[i] = mx.ScaleByte(s)
	}
}

// table lists the values of a four-bit format's codes.
func (w *weight) table() []float32 {
	if w.encoding != nil {
		return w.encoding.Form.Values
	}
	if t, ok := qloraTables[w.d.choice.format]; ok {
		values := t.Values()
		return values[:]
	}
	values := make([]float32, 16)
	for code := range values {
		values[code] = nvfp4.DecodeE2M1(byte(code))
	}
	return values
}
