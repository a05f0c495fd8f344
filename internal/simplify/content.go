package simplify

import (
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/modelfile"
)

// rows divides n elements of a weight, from first on, into parts with the same factor. do gets where a part begins and
// ends, counted from first, and its first row.
func (s *site) rows(first, n int64, do func(from, end, row int64)) {
	length, rows := s.row, int64(1)
	if s.front == nil { // rows for the same channel of the output have the same factor
		length, rows = s.row*s.alike, s.alike
	}
	for from := int64(0); from < n; {
		row := (first + from) / length
		end := min((row+1)*length-first, n)
		do(from, end, row*rows)
		from = end
	}
}

// factor is what the elements of a row are multiplied by.
func (s *site) factor(row int64) float64 {
	f := s.scale[s.outOf(row)]
	if s.front != nil {
		f *= s.gain[s.inOf(row)]
	}
	return f
}

// inTurn reports whether the elements have the factors of all channels of the output in turn.
func (s *site) inTurn() bool { return s.turns && s.front == nil }

// content returns the weight with its factors. They are applied when it is read.
func (s *site) content() *modelfile.Payload {
	size, typ := s.weight.dtype.Bits()/8, s.weight.dtype
	return (&modelfile.Elements{From: s.weight.from, In: size, Out: size, Make: func(dst, raw []byte, x []float32, first int64) {
		typ.Decode(x, raw)
		if s.inTurn() {
			at := int(first % s.out)
			for i, v := range x {
				x[i] = float32(float64(v) * s.scale[at])
				if at++; at == len(s.scale) {
					at = 0
				}
			}
		} else {
			s.rows(first, int64(len(x)), func(from, end, row int64) {
				f := s.factor(row)
				for i, v := range x[from:end] {
					x[from+int64(i)] = float32(float64(v) * f)
				}
			})
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
	most := func(channel int64, v, f float64) {
		if v = math.Abs(v * f); !(v <= largest[channel]) { // also NaN
			largest[channel] = v
		}
	}
	for first := int64(0); first < n; first += stretch {
		part := x[:min(stretch, n-first)]
		raw := raw[:int64(len(part))*size]
		if err := buffer.ReadFull(s.weight.from, raw, first*size); err != nil {
			return nil, err
		}
		typ.Decode(part, raw)
		if s.inTurn() {
			at := first % s.out
			for _, v := range part {
				most(at, float64(v), s.scale[at])
				if at++; at == s.out {
					at = 0
				}
			}
			continue
		}
		s.rows(first, int64(len(part)), func(from, end, row int64) {
			out, f, offset := s.outOf(row), s.factor(row), 0.0
			if s.sums != nil {
				offset = s.offset[s.inOf(row)]
			}
			for _, v := range part[from:end] {
				most(out, float64(v), f)
				if s.sums != nil {
					s.sums[out] += float64(v) * offset
				}
			}
		})
	}
	return largest, nil
}
