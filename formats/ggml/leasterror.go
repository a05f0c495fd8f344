package ggml

import (
	"math"

	"onnxquant/internal/kernels"
)

// LeastError returns an encoding of the same blocks whose Encode looks for a smaller error e of a
// block w: it makes |e|² + ⟨w, e⟩²/|w|² small, each element weighted by the importance if there is
// one. Besides what e finds it tries what e finds if all errors count alike, and if they count by
// the importance alone. Then it stretches the block so that ⟨w, ŵ⟩ = ⟨w, w⟩: blocks of least |e|²
// are a little shorter than the weights, and so would be the outputs of a layer.
//
// |e|² of a block is never above that of e. In Q2_K all of this is weighted by the magnitudes of the
// weights, as in ggml's search: with so few codes, large weights would pay for the small ones.
func (e *Encoding) LeastError() *Encoding {
	least := *e
	least.Encode = func(dst []byte, row, importance []float32) {
		e.Encode(dst, row, importance)
		n := e.Elements
		s := search{e, make([]byte, e.Bytes), make([]float32, n), make([]float32, n)}
		for i := range len(row) / n {
			var p []float32
			if importance != nil {
				p = importance[i*n : (i+1)*n]
			}
			s.improve(dst[i*e.Bytes:(i+1)*e.Bytes], row[i*n:(i+1)*n], p)
		}
	}
	return &least
}

// search has what improves blocks.
type search struct {
	*Encoding
	tried   []byte    // a block
	decoded []float32 // its elements
	weights []float32 // what errors count
}

// Means of squares beyond these are not searched.
const (
	leastMean = 0x1p-90
	mostMean  = 0x1p90
)

// improve replaces an encoded block by a better one, if it finds that.
func (s *search) improve(block []byte, x, importance []float32) {
	mean := sumSquares(x) / float32(len(x))
	was := s.measure(block, x, importance)
	if !(was.squared > 0 && was.squared < math.MaxFloat64 && mean >= leastMean && mean <= mostMean) {
		return
	}
	best := was
	try := func() {
		if m := s.measure(s.tried, x, importance); m.squared <= was.squared && m.miss < best.miss {
			copy(block, s.tried)
			best = m
		}
	}
	for i, v := range x { // searches multiply the importance by about this root
		s.weights[i] = s.counts(importance, i, v) / sqrt(mean+float32(v*v))
	}
	s.Encode(s.tried, x, s.weights)
	try()
	for i, v := range x {
		s.weights[i] = s.counts(importance, i, v)
	}
	s.Encode(s.tried, x, s.weights)
	try()
	copy(s.tried, block)
	for _, at := range multiples[s.Type] {
		d := s.tried[at:]
		putHalf(d, float32(half(d)*best.stretch))
	}
	try()
}

// counts is what the squared error of element i of a block counts.
func (s *search) counts(importance []float32, i int, v float32) float32 {
	w := float32(1)
	if s.Type == Q2_K.Type {
		w = kernels.Abs(v)
	}
	if importance != nil {
		w *= importance[i]
	}
	return w
}

// multiples are, by type, the places of the float16 numbers of a block that are multiplied if all
// its elements are.
var multiples = map[uint32][]int{
	Q4_0.Type: {0}, Q4_1.Type: {0, 2}, Q5_0.Type: {0}, Q5_1.Type: {0, 2}, Q8_0.Type: {0},
	Q2_K.Type: {80, 82}, Q3_K.Type: {108}, Q4_K.Type: {0, 2}, Q5_K.Type: {0, 2}, Q6_K.Type: {208},
	IQ4_NL.Type: {0},
}

// measured is what is known of an encoded block.
type measured struct {
	squared float64 // |e|²
	miss    float64 // what LeastError makes small
	stretch float32 // what makes the block as long as the weights
}

func (s *search) measure(block []byte, x, importance []float32) measured {
	s.Decode(s.decoded, block)
	var squared, xx, xy float64
	for i, v := range x {
		w, a, b := float64(s.counts(importance, i, v)), float64(v), float64(s.decoded[i])
		d := a - b
		squared += float64(w * float64(d*d))
		xx += float64(w * float64(a*a))
		xy += float64(w * float64(a*b))
	}
	if !(xx > 0 && xy > 0) {
		return measured{squared, squared, 1}
	}
	return measured{squared, squared + float64((xy-xx)*(xy-xx))/xx, float32(xx / xy)}
}
