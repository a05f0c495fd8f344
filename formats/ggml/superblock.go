package ggml

import (
	"encoding/binary"
	"slices"

	"onnxquant/internal/kernels"
)

// Super-blocks of 256 elements: parts with scales, and for some with mins, which are
// codes themselves.
var (
	Q2_K = &Encoding{"Q2_K", 10, super, 84, k2.encode, k2.decode, k2.form()}
	Q4_K = &Encoding{"Q4_K", 12, super, 144, k4.encode, k4.decode, k4.form()}
	Q5_K = &Encoding{"Q5_K", 13, super, 176, k5.encode, k5.decode, k5.form()}
)

// super is the number of elements of a super-block.
const super = 256

// affine is an encoding of super-blocks with scales and mins: code q of part p represents
// scale*scales[p]*q - min*mins[p].
type affine struct {
	search    kernels.AffineSearch // without an importance
	last      int                  // the greatest code of scales and mins
	variances float32              // factor of the mean of squares in weights by importance
	size      int                  // bytes of a super-block
}

var (
	k2 = affine{kernels.AffineSearch{
		Block: 16, Last: 3, First: -0.5, Step: 0.1, Tries: 16, Absolute: true, Weighting: kernels.Magnitudes,
	}, 15, 1, 84}
	k4 = affine{kernels.AffineSearch{
		Block: 32, Last: 15, First: -1, Step: 0.1, Tries: 21, Weighting: kernels.AboveAverage,
	}, 63, 2, 144}
	k5 = affine{kernels.AffineSearch{
		Block: 32, Last: 31, First: -0.5, Step: 0.1, Tries: 16, Weighting: kernels.AboveAverage,
	}, 63, 2, 176}
)

// affineBlock is a super-block in parts, of which there are 8 or 16.
type affineBlock struct {
	scale, min   float32
	scales, mins [16]byte
	codes        [super]byte
}

func (f *affine) encode(dst []byte, row, importance []float32) {
	var (
		found found
		s     affineBlock
	)
	for x := range slices.Chunk(row, atOnce) {
		f.find(&found, x, importance)
		for i := 0; i < len(x); i += super {
			f.quantize(&s, x[i:][:super], &found, i, importance != nil)
			f.pack(dst, &s)
			dst = dst[f.size:]
		}
		if importance != nil {
			importance = importance[len(x):]
		}
	}
}

// find searches for the scales and mins of parts.
func (f *affine) find(found *found, x, importance []float32) {
	search := f.search
	if importance != nil {
		search = byImportance(search.Block, search.Last)
		for i := 0; i < len(x); i += super {
			part := x[i:][:super]
			weigh(found.weights[i:], part, importance[i:], f.variances*sumSquares(part)/super)
		}
	}
	search.Find(found.fits(len(x)/search.Block), x, found.weights[:])
}

// quantize quantizes the super-block x, except for the rounding of scale and min. first is the place
// of x in the elements that found covers.
func (f *affine) quantize(s *affineBlock, x []float32, found *found, first int, weighted bool) {
	block := f.search.Block
	n, at := super/block, first/block
	if weighted {
		var sums [16]float32
		for p := range n {
			sums[p] = sum(found.weights[first+p*block:][:block])
		}
		s.scale = fitPositive(s.scales[:n], found.scale[at:], sums[:], f.last)
		s.min = fitPositive(s.mins[:n], found.min[at:], sums[:], f.last)
	} else {
		s.scale = f.fit(s.scales[:n], found.scale[at:])
		s.min = f.fit(s.mins[:n], found.min[at:])
	}
	var scales, mins [16]float32
	scale, least := roundHalf(s.scale), roundHalf(s.min)
	for p := range n {
		scales[p], mins[p] = scale*float32(s.scales[p]), least*float32(s.mins[p])
	}
	kernels.Recode(s.codes[:], x, scales[:n], mins[:n], 0, int(f.search.Last))
	for p := range n {
		if scales[p] == 0 {
			f.search.Codes(s.codes[p*block:][:block], x[p*block:][:block], found.inverse[at+p], found.low[at+p])
		}
	}
}

// fit gives the largest of the first numbers of x, if that is positive, the last code.
func (f *affine) fit(q []byte, x []float32) (scale float32) {
	var largest, inverse float32
	for _, v := range x[:len(q)] {
		if v > largest {
			largest = v
		}
	}
	if largest > 0 {
		inverse = float32(f.last) / largest
	}
	for i := range q {
		q[i] = min(byte(kernels.NearestInt(inverse*x[i])), byte(f.last))
	}
	return largest / float32(f.last)
}

func (f *affine) decode(row []float32, src []byte) {
	var s affineBlock
	block := f.search.Block
	for x := range slices.Chunk(row, super) {
		f.unpack(&s, src)
		for p := range super / block {
			d, m := s.scale*float32(s.scales[p]), float32(s.min*float32(s.mins[p]))
			for i, q := range s.codes[p*block:][:block] {
				x[p*block+i] = float32(d*float32(q)) - m
			}
		}
		src = src[f.size:]
	}
}

func (f *affine) pack(dst []byte, s *affineBlock) {
	switch f {
	case &k2:
		pack2(dst, s)
	case &k4:
		pack4(dst, s)
	default:
		pack5(dst, s)
	}
}

func (f *affine) unpack(s *affineBlock, src []byte) {
	switch f {
	case &k2:
		unpack2(s, src)
	case &k4:
		unpack4(s, src)
	default:
		unpack5(s, src)
	}
}

// Q2_K: 16 bytes of a scale's code low and a min's high, codes, scale, min.

func pack2(dst []byte, s *affineBlock) {
	for p := range s.scales {
		dst[p] = s.scales[p] | s.mins[p]<<4
	}
	packPairs(dst[16:], &s.codes)
	putHalf(dst[80:], s.scale)
	putHalf(dst[82:], s.min)
}

func unpack2(s *affineBlock, src []byte) {
	for p, b := range src[:16] {
		s.scales[p], s.mins[p] = b&15, b>>4
	}
	unpackPairs(&s.codes, src[16:])
	s.scale, s.min = half(src[80:]), half(src[82:])
}

// Q4_K: scale, min, 12 bytes of their codes, codes. Q5_K: the fifth bits before these.

func pack4(dst []byte, s *affineBlock) {
	packHead(dst, s)
	packHalves(dst[16:], &s.codes)
}

func unpack4(s *affineBlock, src []byte) {
	unpackHead(s, src)
	unpackHalves(&s.codes, src[16:])
}

func pack5(dst []byte, s *affineBlock) {
	packHead(dst, s)
	packPlanes(dst[16:48], &s.codes, 4)
	packHalves(dst[48:], &s.codes)
}

func unpack5(s *affineBlock, src []byte) {
	unpackHead(s, src)
	unpackHalves(&s.codes, src[48:])
	addPlanes(&s.codes, src[16:48], 4)
}

// packHead packs scale, min, and eight codes of 6 bits of each. The first four codes of each take a
// byte; its highest two bits belong to one of the last four codes, whose low four bits follow.
func packHead(dst []byte, s *affineBlock) {
	putHalf(dst, s.scale)
	putHalf(dst[2:], s.min)
	for p := range 4 {
		scale, least := s.scales[p+4], s.mins[p+4]
		dst[4+p] = s.scales[p] | scale>>4<<6
		dst[8+p] = s.mins[p] | least>>4<<6
		dst[12+p] = scale&15 | least<<4
	}
}

func unpackHead(s *affineBlock, src []byte) {
	s.scale, s.min = half(src), half(src[2:])
	for p := range 4 {
		scale, least, low := src[4+p], src[8+p], src[12+p]
		s.scales[p], s.scales[p+4] = scale&63, scale>>6<<4|low&15
		s.mins[p], s.mins[p+4] = least&63, least>>6<<4|low>>4
	}
}

// roundHalf returns the float16 nearest to v.
func roundHalf(v float32) float32 {
	var b [2]byte
	return putHalf(b[:], v)
}

const (
	ones    = 0x0101010101010101
	pairs   = 3 * ones
	nibbles = 15 * ones
)

// packPairs packs the low two bits of codes: of each 128 codes, byte i of 32 has the bits of codes i,
// i+32, i+64 and i+96, low bits first.
func packPairs(dst []byte, q *[super]byte) {
	for h := 0; h < super; h += 128 {
		for i := 0; i < 32; i += 8 {
			var b uint64
			for j := range 4 {
				b |= binary.LittleEndian.Uint64(q[h+32*j+i:]) & pairs << (2 * j)
			}
			binary.LittleEndian.PutUint64(dst[h/4+i:], b)
		}
	}
}

func unpackPairs(q *[super]byte, src []byte) {
	for h := 0; h < super; h += 128 {
		for i, b := range src[h/4:][:32] {
			for j := range 4 {
				q[h+32*j+i] = b >> (2 * j) & 3
			}
		}
	}
}

// packHalves packs the low four bits of codes: of each 64 codes, byte i of 32 has code i in its low
// half and code i+32 in its high half.
func packHalves(dst []byte, q *[super]byte) {
	for h := 0; h < super; h += 64 {
		for i := 0; i < 32; i += 8 {
			low, high := binary.LittleEndian.Uint64(q[h+i:]), binary.LittleEndian.Uint64(q[h+32+i:])
			binary.LittleEndian.PutUint64(dst[h/2+i:], low&nibbles|high&nibbles<<4)
		}
	}
}

func unpackHalves(q *[super]byte, src []byte) {
	for h := 0; h < super; h += 64 {
		for i, b := range src[h/2:][:32] {
			q[h+i], q[h+32+i] = b&15, b>>4
		}
	}
}

// packPlanes packs one bit of each code: bit j of byte i belongs to code 32j+i.
func packPlanes(dst []byte, q *[super]byte, bit int) {
	for i := 0; i < 32; i += 8 {
		var b uint64
		for j := range 8 {
			b |= binary.LittleEndian.Uint64(q[32*j+i:]) >> bit & ones << j
		}
		binary.LittleEndian.PutUint64(dst[i:], b)
	}
}

func addPlanes(q *[super]byte, src []byte, bit int) {
	for i, b := range src[:32] {
		for j := range 8 {
			q[32*j+i] |= b >> j & 1 << bit
		}
	}
}
