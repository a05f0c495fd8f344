package ggml

import (
	"encoding/binary"
	"slices"

	"onnxquant/internal/kernels"
)

// Blocks of 32 elements with a scale, for Q4_1 and Q5_1 a least value too.
var (
	Q4_0 = simple{bits: 4}.encoding("Q4_0", 2)
	Q4_1 = simple{bits: 4, affine: true}.encoding("Q4_1", 3)
	Q5_0 = simple{bits: 5}.encoding("Q5_0", 6)
	Q5_1 = simple{bits: 5, affine: true}.encoding("Q5_1", 7)
	Q8_0 = &Encoding{"Q8_0", 8, small, 2 + small, encodeQ8_0, decodeQ8_0, &Form{
		Bits: 8, Signed: true, Part: small, Split: splitQ8_0, Join: joinQ8_0,
	}}
)

// small is the number of elements of a block without parts.
const small = 32

// simple is an encoding of 4 or 5 bits. A block has its scale, the least value if it is affine, the
// fifth bits if the codes have 5, and the low four bits.
type simple struct {
	bits   int
	affine bool
}

func (f simple) encoding(name string, t uint32) *Encoding {
	header := 2
	if f.affine {
		header += 2
	}
	return &Encoding{name, t, small, header + small*f.bits/8, f.encode, f.decode, f.form()}
}

func (f simple) encode(dst []byte, row, importance []float32) {
	switch {
	case importance != nil:
		f.search(dst, row, importance)
	case f == simple{bits: 4}:
		kernels.QuantizeNibbles(dst, row)
	default:
		var q [small]byte
		for x := range slices.Chunk(row, small) {
			var scale, low float32
			if f.affine {
				scale, low = f.fitAffine(&q, x)
			} else {
				scale = f.fitSymmetric(&q, x)
			}
			dst = f.pack(dst, &q, scale, low)
		}
	}
}

// search chooses the scales, least values and codes with the least weighted error.
func (f simple) search(dst []byte, row, importance []float32) {
	f.searchRows(dst, row, importance, len(row))
}

// searchEach is search for blocks each of which is a row.
func (f simple) searchEach(dst []byte, blocks, importance []float32) {
	f.searchRows(dst, blocks, importance, small)
}

// searchRows is search for rows of a length: as long as x, or a block.
func (f simple) searchRows(dst []byte, x, importance []float32, length int) {
	var (
		q         [small]byte
		found     found
		symmetric = kernels.SymmetricSearch{Block: small, Half: float32(f.zero())}
		affine    = byImportance(small, float32(2*f.zero()-1))
		average   float32 // of the squares of a row
	)
	if length == len(x) {
		average = sumSquares(x) / float32(length)
	}
	for x := range slices.Chunk(x, atOnce) {
		if length == small {
			for b := 0; b < len(x); b += small {
				row := x[b:][:small]
				weigh(found.weights[b:], row, importance[b:], sumSquares(row)/small)
			}
		} else {
			weigh(found.weights[:], x, importance, average)
		}
		importance = importance[len(x):]
		n := len(x) / small
		if f.affine {
			affine.Find(found.fits(n), x, found.weights[:])
		} else {
			symmetric.Find(found.scale[:n], found.inverse[:n], x, found.weights[:])
		}
		for b := range n {
			part := x[b*small:][:small]
			if f.affine {
				affine.Codes(q[:], part, found.inverse[b], found.low[b])
			} else {
				symmetric.Codes(q[:], part, found.inverse[b])
			}
			dst = f.pack(dst, &q, found.scale[b], -found.min[b])
		}
	}
}

// pack packs a block and returns the rest of dst.
func (f simple) pack(dst []byte, q *[small]byte, scale, low float32) []byte {
	putHalf(dst, scale)
	dst = dst[2:]
	if f.affine {
		putHalf(dst, low)
		dst = dst[2:]
	}
	if f.bits == 5 {
		putFifthBits(dst, q)
		dst = dst[small/8:]
	}
	pairNibbles(dst, q)
	return dst[small/2:]
}

// simpleBlock is an unpacked block.
type simpleBlock struct {
	scale, low float32
	codes      [small]byte
}

// unpack unpacks a block and returns the rest of src.
func (f simple) unpack(b *simpleBlock, src []byte) []byte {
	b.scale = half(src)
	src = src[2:]
	if f.affine {
		b.low = half(src)
		src = src[2:]
	}
	if f.bits == 4 {
		splitNibbles(&b.codes, src)
		return src[small/2:]
	}
	splitNibbles(&b.codes, src[small/8:])
	addFifthBits(&b.codes, src)
	return src[small/8+small/2:]
}

func (f simple) decode(row []float32, src []byte) {
	var b simpleBlock
	for x := range slices.Chunk(row, small) {
		src = f.unpack(&b, src)
		for i, q := range b.codes {
			if f.affine {
				x[i] = float32(float32(q)*b.scale) + b.low
			} else {
				x[i] = float32(int(q)-f.zero()) * b.scale
			}
		}
	}
}

// zero is half the number of codes: the code of 0, unless the encoding is affine.
func (f simple) zero() int { return 1 << (f.bits - 1) }

// fitSymmetric gives the element of largest magnitude the code 0.
func (f simple) fitSymmetric(q *[small]byte, x []float32) (scale float32) {
	zero := f.zero()
	scale = extreme(x) / -float32(zero)
	inverse := kernels.Reciprocal(scale)
	for i, v := range x {
		q[i] = byte(min(int(float32(v*inverse)+(float32(zero)+0.5)), 2*zero-1))
	}
	return scale
}

// fitAffine gives the least element the code 0 and the greatest the last one.
func (f simple) fitAffine(q *[small]byte, x []float32) (scale, low float32) {
	last := 2*f.zero() - 1
	low, high := ends(x)
	scale = (high - low) / float32(last)
	inverse := kernels.Reciprocal(scale)
	for i, v := range x {
		q[i] = byte(min(int(float32((v-low)*inverse)+0.5), last))
	}
	return scale, low
}

func encodeQ8_0(dst []byte, row, _ []float32) { kernels.QuantizeBytes(dst, row) }

func decodeQ8_0(row []float32, src []byte) {
	for x := range slices.Chunk(row, small) {
		scale := half(src)
		for i := range x {
			x[i] = float32(int8(src[2+i])) * scale
		}
		src = src[2+small:]
	}
}

// extreme returns the first element of largest magnitude.
func extreme(x []float32) float32 {
	var m float32
	for _, v := range x {
		if kernels.Abs(v) > kernels.Abs(m) {
			m = v
		}
	}
	return m
}

// ends returns the first least and the greatest element.
func ends(x []float32) (low, high float32) {
	low, high = x[0], x[0]
	for _, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high
}

// pairNibbles packs the low four bits of codes: byte i has code i in its low half and code i+16 in its
// high half.
func pairNibbles(dst []byte, q *[small]byte) {
	const mask = 0x0f0f0f0f0f0f0f0f
	for i := 0; i < small/2; i += 8 {
		low, high := binary.LittleEndian.Uint64(q[i:]), binary.LittleEndian.Uint64(q[small/2+i:])
		binary.LittleEndian.PutUint64(dst[i:], low&mask|high&mask<<4)
	}
}

func splitNibbles(q *[small]byte, src []byte) {
	for i, b := range src[:small/2] {
		q[i], q[small/2+i] = b&15, b>>4
	}
}

// putFifthBits packs the fifth bits of codes: bit i of 32 is the fifth bit of code i.
func putFifthBits(dst []byte, q *[small]byte) {
	var bits uint32
	for i, c := range q {
		bits |= uint32(c>>4&1) << i
	}
	binary.LittleEndian.PutUint32(dst, bits)
}

func addFifthBits(q *[small]byte, src []byte) {
	bits := binary.LittleEndian.Uint32(src)
	for i := range q {
		q[i] |= byte(bits>>i&1) << 4
	}
}
