package ggml

import (
	"encoding/binary"
	"slices"

	"onnxquant/internal/kernels"
)

// Super-blocks of 16 parts whose scales are codes too: code q of part p represents
// scale*scales[p]*(q-zero), where scale and scales may be negative.
var (
	Q3_K = &Encoding{"Q3_K", 11, super, bytesQ3_K, encodeQ3_K, decodeQ3_K, &Form{
		Bits: 3, Signed: true, Part: part, Nested: true, Split: splitQ3_K, Join: joinQ3_K,
	}}
	Q6_K = &Encoding{"Q6_K", 14, super, bytesQ6_K, encodeQ6_K, decodeQ6_K, &Form{
		Bits: 6, Signed: true, Part: part, Nested: true, Split: splitQ6_K, Join: joinQ6_K,
	}}
)

const (
	bytesQ3_K = 110
	bytesQ6_K = 210

	parts = 16
	part  = super / parts
)

// symmetricBlock is a super-block in parts.
type symmetricBlock struct {
	scale  float32
	scales [parts]int8
	codes  [super]byte
}

// recode gives codes by the scales as they are stored. Parts whose scale is zero keep
// theirs.
func (s *symmetricBlock) recode(x []float32, zero int) {
	var (
		scales, none [parts]float32
		codes        [super]byte
	)
	scale := roundHalf(s.scale)
	for p, c := range s.scales {
		scales[p] = scale * float32(c)
	}
	kernels.Recode(codes[:], x, scales[:], none[:], zero, 2*zero-1)
	for p, d := range scales {
		if d != 0 {
			copy(s.codes[p*part:], codes[p*part:][:part])
		}
	}
}

func (s *symmetricBlock) decode(x []float32, zero int) {
	for p, c := range s.scales {
		d := s.scale * float32(c)
		for i, q := range s.codes[p*part:][:part] {
			x[p*part+i] = d * float32(int(q)-zero)
		}
	}
}

func encodeQ6_K(dst []byte, row, importance []float32) {
	search := kernels.SymmetricSearch{Block: part, Half: 32, Weighting: kernels.Squares}
	if importance != nil {
		search.Weighting = kernels.Given
	}
	var (
		s               symmetricBlock
		scales, inverse [parts]float32
	)
	for x := range slices.Chunk(row, super) {
		search.Find(scales[:], inverse[:], x, importance)
		if importance != nil {
			importance = importance[super:]
		}
		if largest := extreme(scales[:]); kernels.Abs(largest) < negligible {
			s = symmetricBlock{}
		} else {
			to := -128 / largest
			s.scale = 1 / to
			for p, v := range scales {
				s.scales[p] = int8(min(127, kernels.NearestInt(to*v)))
				search.Codes(s.codes[p*part:][:part], x[p*part:][:part], inverse[p])
			}
			s.recode(x, 32)
		}
		packQ6_K(dst, &s)
		dst = dst[bytesQ6_K:]
	}
}

// Q6_K: the low four bits of codes, the high two, scales, scale.

func packQ6_K(dst []byte, s *symmetricBlock) {
	var high [super]byte
	for h := 0; h < super; h += 128 {
		for i := 0; i < 64; i += 8 {
			low, up := binary.LittleEndian.Uint64(s.codes[h+i:]), binary.LittleEndian.Uint64(s.codes[h+64+i:])
			binary.LittleEndian.PutUint64(dst[h/2+i:], low&nibbles|up&nibbles<<4)
		}
	}
	for i, q := range s.codes {
		high[i] = q >> 4
	}
	packPairs(dst[128:], &high)
	for p, c := range s.scales {
		dst[192+p] = byte(c)
	}
	putHalf(dst[208:], s.scale)
}

func unpackQ6_K(s *symmetricBlock, src []byte) {
	unpackPairs(&s.codes, src[128:])
	for h := 0; h < super; h += 128 {
		for i, b := range src[h/2:][:64] {
			s.codes[h+i] = s.codes[h+i]<<4 | b&15
			s.codes[h+64+i] = s.codes[h+64+i]<<4 | b>>4
		}
	}
	for p := range s.scales {
		s.scales[p] = int8(src[192+p])
	}
	s.scale = half(src[208:])
}

func decodeQ6_K(row []float32, src []byte) {
	var s symmetricBlock
	for x := range slices.Chunk(row, super) {
		unpackQ6_K(&s, src)
		s.decode(x, 32)
		src = src[bytesQ6_K:]
	}
}

func encodeQ3_K(dst []byte, row, importance []float32) {
	var s symmetricBlock
	for x := range slices.Chunk(row, super) {
		if importance != nil {
			s.searchQ3_K(x, importance[:super])
			importance = importance[super:]
		} else {
			s.fitQ3_K(x)
		}
		s.recode(x, 4)
		packQ3_K(dst, &s)
		dst = dst[bytesQ3_K:]
	}
}

// fitQ3_K fits each part, and gives the scale of largest magnitude the code -32.
func (s *symmetricBlock) fitQ3_K(x []float32) {
	var scales [parts]float32
	for p := range parts {
		scales[p] = fitSigned(s.codes[p*part:][:part], x[p*part:][:part])
	}
	largest := extreme(scales[:])
	if largest == 0 {
		s.scale = 0
		for p := range s.scales {
			s.scales[p] = -32
		}
		return
	}
	to := -32 / largest
	s.scale = 1 / to
	for p, v := range scales {
		s.scales[p] = int8(max(-32, min(kernels.NearestInt(to*v), 31)))
	}
}

// searchQ3_K searches for the scales of the parts, and for the scale of these.
func (s *symmetricBlock) searchQ3_K(x, importance []float32) {
	var (
		w                     [super]float32
		scales, inverse, sums [parts]float32
		q                     [parts]byte
		scale, to             [1]float32
	)
	weigh(w[:], x, importance, 2*sumSquares(x)/super)
	search := kernels.SymmetricSearch{Block: part, Half: 4}
	search.Find(scales[:], inverse[:], x, w[:])
	for p := range parts {
		search.Codes(s.codes[p*part:][:part], x[p*part:][:part], inverse[p])
		sums[p] = sum(w[p*part:][:part])
	}
	search = kernels.SymmetricSearch{Block: parts, Half: 32}
	search.Find(scale[:], to[:], scales[:], sums[:])
	search.Codes(q[:], scales[:], to[0])
	s.scale = scale[0]
	for p, c := range q {
		s.scales[p] = int8(c) - 32
	}
}

// fitSigned finds codes 0 … 7, for -4 … 3, of a part and returns their scale. It begins with the
// element of the largest magnitude, then changes single codes as long as a common scale fits better.
// Errors are weighted by the square of the element.
func fitSigned(q []byte, x []float32) (scale float32) {
	largest := extreme(x)
	if kernels.Abs(largest) < negligible {
		clear(q)
		return 0
	}
	inverse := -4 / largest
	var f fit
	for i, v := range x {
		c := max(-4, min(kernels.NearestInt(inverse*v), 3))
		q[i] = byte(c + 4)
		f.add(v, v*v, c)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			c, w := int(q[i])-4, v*v
			rest := f.without(v, w, c)
			if !(rest.xq > 0) {
				continue
			}
			n := max(-4, min(kernels.NearestInt(float32(v*rest.qq)/rest.xq), 3))
			if n == c {
				continue
			}
			rest.add(v, w, n)
			if rest.qq > 0 && rest.better(f) {
				q[i], f, changed = byte(n+4), rest, true
			}
		}
		if !changed {
			break
		}
	}
	return f.scale()
}

// Q3_K: the third bits of codes, the low two, 12 bytes of scales' codes, scale.

func packQ3_K(dst []byte, s *symmetricBlock) {
	packPlanes(dst, &s.codes, 2)
	packPairs(dst[32:], &s.codes)
	clear(dst[96:108])
	for p, c := range s.scales {
		c := byte(c + 32)
		dst[96+p%8] |= c & 15 << (p / 8 * 4)
		dst[104+p%4] |= c >> 4 << (p / 4 * 2)
	}
	putHalf(dst[108:], s.scale)
}

func unpackQ3_K(s *symmetricBlock, src []byte) {
	unpackPairs(&s.codes, src[32:])
	addPlanes(&s.codes, src, 2)
	for p := range s.scales {
		low, high := src[96+p%8]>>(p/8*4)&15, src[104+p%4]>>(p/4*2)&3
		s.scales[p] = int8(low|high<<4) - 32
	}
	s.scale = half(src[108:])
}

func decodeQ3_K(row []float32, src []byte) {
	var s symmetricBlock
	for x := range slices.Chunk(row, super) {
		unpackQ3_K(&s, src)
		s.decode(x, 4)
		src = src[bytesQ3_K:]
	}
}
