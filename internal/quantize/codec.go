package quantize

import (
	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/mx"
	"onnxquant/nvfp4"
)

// Codec turns elements into codes and back. Package int4 tells what its methods
// do; those of the other number packages do the same for theirs. A symmetric
// format makes no use of lo and zero.
type Codec interface {
	Validate() error
	HasZeroPoints() bool

	// A range pass over all elements of a block …
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)

	// … gives its scale, as a float32 of the value that is stored …
	Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool)

	// … and that the codes, one a byte, with how far they are from the elements.
	QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats
	QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats
	DecodeColumns(x []float32, q []byte, scale []float32, zero []byte)
	DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int)
}

// rescaled returns a codec of a two-level format for a tensor whose largest magnitude
// is amax, and the scale of the whole tensor.
func rescaled(c Codec, amax float32) (Codec, float32, error) {
	twoLevel := c.(nvfp4.Codec)
	scale, err := nvfp4.TensorScale(amax)
	twoLevel.TensorScale = scale
	return twoLevel, scale, err
}

// encodeScales sets raw to scales as they are stored.
func encodeScales(raw []byte, scales []float32, t dtype.DType) {
	switch t {
	case dtype.Float8E8M0:
		for i, s := range scales {
			raw[i] = mx.ScaleByte(s)
		}
	case dtype.Float8E4M3FN:
		nvfp4.ScaleBytes(raw, scales)
	default:
		t.Encode(raw, scales)
	}
}
