package simplify

import (
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
)

// factor is what the elements of a row are multiplied by.
func (s *site) factor(row int64) float64 {
	f := s.scale[s.outOf(row)]
	if s.gain != nil {
		f *= s.gain[s.inOf(row)]
	}
	return f
}

// content returns the weight with its factors. They are applied when it is read.
func (s *site) content() *modelfile.Payload {
	size, typ := s.weight.dtype.Bits()/8, s.weight.dtype
	return (&modelfile.Elements{From: s.weight.from, In: size, Out: size, Make: func(dst, raw []byte, x []float32, first int64) {
		typ.Decode(x, raw)
		for at := int64(0); at < int64(len(x)); {
			row := (first + at) / s.row
			end := min((row+1)*s.row-first, int64(len(x)))
			f := s.factor(row)
			for i, v := range x[at:end] {
				x[at+int64(i)] = float32(float64(v) * f)
			}
			at = end
		}
		typ.Encode(dst, x)
	}}).Payload()
}

// stretch is how many elements are read at once.
const stretch = 64 << 10

// read passes over the weight. It returns the largest magnitude with factors, by channel of the output, and
// adds up the products with the offsets of the front.
func (s *site) read() (largest []float64, err error) {
	largest, s.sums = make([]float64, s.out), nil
	if s.front != nil {
		s.sums = make([]float64, s.out)
	}
	size, typ := s.weight.dtype.Bits()/8, s.weight.dtype
	n := s.weight.from.Size() / size
	raw, x := make([]byte, stretch*size), make([]float32, stretch)
	for first := int64(0); first < n; first += stretch {
		count := min(stretch, n-first)
		if err := buffer.ReadFull(s.weight.from, raw[:count*size], first*size); err != nil {
			return nil, err
		}
		typ.Decode(x[:count], raw[:count*size])
		for i, v := range x[:count] {
			row := (first + int64(i)) / s.row
			out := s.outOf(row)
			v := float64(v)
			if s.sums != nil {
				s.sums[out] += v * s.offset[s.inOf(row)]
			}
			if size := math.Abs(v * s.factor(row)); !(size <= largest[out]) { // also NaN
				largest[out] = size
			}
		}
	}
	return largest, nil
}
