package op

import (
	"math"
	"sort"

	"onnxquant/formats/dtype"
)

// small is a floating-point type of at most 8 bits.
type small struct {
	exponent, mantissa, bias int
	infinity                 bool  // as IEEE 754 has it
	nan                      []int // codes; the first one stands for all
	decoded                  [256]float64
	positive                 []float64 // the finite values from 0 on, by code
}

// smalls are the floating-point types of at most 8 bits, but for FLOAT8E8M0.
var smalls = map[dtype.DType]*small{
	dtype.Float8E4M3FN:   newSmall(4, 3, 7, false, 0x7f, 0xff),
	dtype.Float8E4M3FNUZ: newSmall(4, 3, 8, false, 0x80),
	dtype.Float8E5M2:     newSmall(5, 2, 15, true, 0x7e, 0x7d, 0x7f, 0xfd, 0xfe, 0xff),
	dtype.Float8E5M2FNUZ: newSmall(5, 2, 16, false, 0x80),
	dtype.Float4E2M1:     newSmall(2, 1, 1, false),
	dtype.Float6E2M3:     newSmall(2, 3, 1, false),
	dtype.Float6E3M2:     newSmall(3, 2, 3, false),
}

func newSmall(exponent, mantissa, bias int, infinity bool, nan ...int) *small {
	s := &small{exponent: exponent, mantissa: mantissa, bias: bias, infinity: infinity, nan: nan}
	half := 1 << (exponent + mantissa)
	for code := range 2 * half {
		e, m := code%half>>mantissa, float64(code%(1<<mantissa))/float64(int(1)<<mantissa)
		v := math.Ldexp(1+m, e-bias)
		if e == 0 {
			v = math.Ldexp(m, 1-bias)
		}
		if infinity && e == 1<<exponent-1 {
			v = math.Inf(1)
		}
		if code >= half {
			v = -v
		}
		s.decoded[code] = v
	}
	for _, code := range nan {
		s.decoded[code] = math.NaN()
	}
	for code := range half {
		if v := s.decoded[code]; v-v == 0 {
			s.positive = append(s.positive, v)
		}
	}
	return s
}

// encode rounds to the nearest value, ties to the even code. What is too large becomes the largest number with
// saturate, else infinity or NaN.
func (s *small) encode(x float64, saturate bool) byte {
	sign := 0
	if math.Signbit(x) {
		sign, x = 1<<(s.exponent+s.mantissa), -x
	}
	if x != x {
		if len(s.nan) == 0 { // as ml_dtypes does
			return byte(1<<(s.exponent+s.mantissa) | 0)
		}
		return byte(s.nan[0] | sign)
	}
	last := len(s.positive) - 1
	most := s.positive[last]
	if over := most + (most-s.positive[last-1])/2; x >= over || x > most && last%2 == 1 && x >= over {
		switch {
		case saturate || len(s.nan) == 0:
			return byte(last | sign)
		case s.infinity:
			return byte(last + 1 | sign)
		}
		if s.nan[0] == 0x80 { // one NaN, without a sign
			return 0x80
		}
		return byte(s.nan[0] | sign)
	}
	code := sort.SearchFloat64s(s.positive, x)
	if code > last {
		code = last
	}
	if code > 0 {
		if below, above := x-s.positive[code-1], s.positive[code]-x; below < above || below == above && code%2 == 1 {
			code--
		}
	}
	if code == 0 && len(s.nan) > 0 && s.nan[0] == 0x80 { // no negative zero
		return 0
	}
	return byte(code | sign)
}

// DecodeSmall returns elements of a floating-point type of at most 8 bits. ok is false for other types.
func DecodeSmall(typ dtype.DType, codes []byte) (x []float64, ok bool) {
	x = make([]float64, len(codes))
	if typ == dtype.Float8E8M0 {
		for i, code := range codes {
			x[i] = math.Ldexp(1, int(code)-127)
			if code == 255 {
				x[i] = math.NaN()
			}
		}
		return x, true
	}
	s := smalls[typ]
	if s == nil {
		return nil, false
	}
	for i, code := range codes {
		x[i] = s.decoded[code]
	}
	return x, true
}

// EncodeSmall is the inverse of DecodeSmall. round is the mode for FLOAT8E8M0: up, down or nearest.
func EncodeSmall(typ dtype.DType, x []float64, saturate bool, round string) (codes []byte, ok bool) {
	codes = make([]byte, len(x))
	s := smalls[typ]
	for i, v := range x {
		switch {
		case s != nil:
			codes[i] = s.encode(v, saturate)
		case typ == dtype.Float8E8M0:
			codes[i] = encodeScale(v, saturate, round)
		default:
			return nil, false
		}
	}
	return codes, true
}

// encodeScale returns the power of two for a scale.
func encodeScale(x float64, saturate bool, round string) byte {
	x = math.Abs(x)
	if x != x || math.IsInf(x, 0) && !saturate {
		return 255
	}
	part, e := math.Frexp(x) // x = part·2^e, part from 1/2 on
	code := e - 1 + 127
	if part > 0.5 && (round == "up" || round == "nearest" && part >= 0.75) {
		code++
	}
	switch {
	case x == 0 || code < 0:
		return 0
	case math.IsInf(x, 0) || code > 254:
		if saturate {
			return 254
		}
		return 255
	}
	return byte(code)
}
