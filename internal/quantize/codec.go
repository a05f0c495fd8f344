package quantize

import (
	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/mx"
	"onnxquant/int4"
	"onnxquant/nvfp4"
)

// Codec turns elements into codes and back. [int4.Codec] documents the methods; the codecs of the
// other number packages work alike. A symmetric format ignores lo and zero.
type Codec interface {
	Validate() error
	HasZeroPoints() bool

	// Observe widens the range of each block by elements.
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)

	// Scales computes the scale of each range, rounded as it will be stored.
	Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool)

	// Quantize computes codes, one per byte, and their errors. Decode turns codes into values.
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
