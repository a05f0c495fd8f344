package kernels

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// smallBlock is the number of elements of the blocks below.
const smallBlock = 32

// QuantizeNibbles encodes blocks of 32 elements in ggml's Q4_0, 18 bytes each: a float16 scale that
// makes the first element of the largest magnitude -8, and the codes of x/scale + 8, rounded half up.
// Byte i has code i in its low half and code i+16 in its high half.
func QuantizeNibbles(dst []byte, x []float32) {
	checkSmall(len(dst), len(x), 18)
	quantizeNibbles(dst, x)
}

// QuantizeBytes encodes blocks of 32 elements in ggml's Q8_0, 34 bytes each: a float16 scale that
// makes the largest magnitude 127, and x/scale as int8, rounded half away from 0.
func QuantizeBytes(dst []byte, x []float32) {
	checkSmall(len(dst), len(x), 34)
	quantizeBytes(dst, x)
}

func checkSmall(bytes, elements, size int) {
	if elements%smallBlock != 0 || bytes != elements/smallBlock*size {
		panic("kernels: blocks do not fit together")
	}
}

func quantizeNibblesGo(dst []byte, x []float32) {
	for ; len(x) > 0; x, dst = x[smallBlock:], dst[18:] {
		var extreme float32
		for _, v := range x[:smallBlock] {
			if Abs(v) > Abs(extreme) {
				extreme = v
			}
		}
		scale := extreme / -8
		putFloat16(dst, scale)
		inverse := Reciprocal(scale)
		code := func(v float32) byte { return byte(min(int32(float32(v*inverse)+8.5), 15)) }
		for i, v := range x[:smallBlock/2] {
			dst[2+i] = code(v) | code(x[smallBlock/2+i])<<4
		}
	}
}

func quantizeBytesGo(dst []byte, x []float32) {
	for ; len(x) > 0; x, dst = x[smallBlock:], dst[34:] {
		var amax uint32
		for _, v := range x[:smallBlock] {
			amax = max(amax, abs(v))
		}
		scale := math.Float32frombits(amax) / 127
		putFloat16(dst, scale)
		inverse := Reciprocal(scale)
		for i, v := range x[:smallBlock] {
			dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
		}
	}
}

// Reciprocal returns 1/v, or 0 if that is infinite.
func Reciprocal(v float32) float32 {
	if r := 1 / v; IsFinite(r) {
		return r
	}
	return 0
}

func putFloat16(dst []byte, v float32) {
	binary.LittleEndian.PutUint16(dst, float16.Fromfloat32(v).Bits())
}
