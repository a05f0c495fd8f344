package quantize

import (
	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/mx"
	"onnxquant/int4"
	"onnxquant/nvfp4"
)

// Codec turns elements into codes and back. See [int4.Codec] for its methods; the codecs of
// the other number packages work alike. A symmetric format ignores lo and zero.
type Codec interface {
	Validate() error
	HasZeroPoints() bool

	// These widen the range of each block by elements …
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)

	// … this finds the scale of each range, rounded as it will be stored …
	Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool)

	// … and these find the codes, one per byte, with their errors, and decode them.
	QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats
	QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats
	DecodeColumns(x []float32, q []byte, scale []float32, zero []byte)
	DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int)
}

// encodeScales encodes scales of a codec as type t.
func encodeScales(raw []byte, scales []float32, t dtype.DType, c Codec) {
	switch t {
	case dtype.Float8E8M0:
		for i, s := range scales {
			raw[i] = mx.ScaleByte(s)
		}
	case dtype.Float8E4M3FN:
		nvfp4.ScaleBytes(raw, scales)
	case dtype.Int8, dtype.Uint8:
		c.(int4.Codec).ScaleSteps(raw, scales)
	default:
		t.Encode(raw, scales)
	}
}
