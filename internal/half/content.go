package half

import (
	"math"
	"slices"
	"sync/atomic"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
)

// Tally counts what happened to the elements that were read so far. An element that is read twice
// counts twice.
type Tally struct {
	Vanished atomic.Int64 // became 0
	beyond   atomic.Bool  // a finite element is beyond the type's range
}

// content makes the content of a float32 tensor in another type.
type content struct {
	to    dtype.DType
	clamp bool // clamp elements beyond the range to the largest number
	tally *Tally
}

// of returns the converted content of a float32 tensor.
func (c *content) of(from *modelfile.Payload) *modelfile.Elements {
	return &modelfile.Elements{From: from, In: 4, Out: 2, Make: c.convert, Alike: true, Round: c.round}
}

// convert converts elements, through x.
func (c *content) convert(dst, raw []byte, x []float32, _ int64) {
	dtype.Float32.Decode(x, raw)
	c.encodeWithin(dst, x)
}

// round rounds elements as convert does.
func (c *content) round(x []float32) {
	var raw [2 << 10]byte
	for part := range slices.Chunk(x, len(raw)/2) {
		c.encodeWithin(raw[:], part)
		c.to.Decode(part, raw[:])
	}
}

// encodeWithin encodes elements, clamps them if that is asked for, and updates the Tally.
func (c *content) encodeWithin(dst []byte, x []float32) {
	beyond, vanished := c.encode(dst, x)
	if vanished > 0 {
		c.tally.Vanished.Add(int64(vanished))
	}
	if beyond == 0 {
		return
	}
	if !c.clamp {
		c.tally.beyond.Store(true)
		return
	}
	limit, _ := limits(c.to)
	for i, v := range x {
		if a := math.Float32bits(v) &^ (1 << 31); a >= limit && a < infinity {
			x[i] = float32(math.Copysign(float64(largest(c.to)), float64(v)))
		}
	}
	c.encode(dst, x)
}

func (c *content) encode(dst []byte, x []float32) (beyond, vanished int) {
	if c.to == dtype.Float16 {
		return kernels.ToFloat16(dst, x)
	}
	return kernels.ToBFloat16(dst, x)
}

// infinity is the bits of float32's infinity.
const infinity = 0x7f800000

// limits returns the bits of the least float32 that rounds to infinity, and of the largest
// that rounds to 0.
func limits(t dtype.DType) (beyond, vanishing uint32) {
	if t == dtype.Float16 {
		return math.Float32bits(65520), math.Float32bits(0x1p-25)
	}
	return 0x7f7f8000, 0x8000
}

// largest is the largest finite number of a type.
func largest(t dtype.DType) float32 {
	if t == dtype.Float16 {
		return 65504
	}
	return math.Float32frombits(0x7f7f0000)
}
