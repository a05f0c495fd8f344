package ggml

import (
	"math"

	"onnxquant/internal/kernels"
)

// LeastError returns an encoding of the same blocks whose Encode searches for a smaller error. For a
// block w with error e it minimizes |e|² + ⟨w, e⟩²/|w|², weighted by the importance, if given. It
// tries three starts: the codes of this encoding, of a search without its own weighting of errors, and
// of one weighted by the importance only. Then it stretches the block so that ⟨w, ŵ⟩ = ⟨w, w⟩: blocks
// with the least |e|² are slightly shorter than the weights, and would shrink the outputs of a layer.
//
// |e|² of a block is never above that of this encoding. In Q2_K, errors are also weighted by the
// magnitudes of the weights, as in ggml's search: with so few codes, small weights would otherwise
// harm large ones.
func (e *Encoding) LeastError() *Encoding {
	least := *e
	least.Encode = func(dst []byte, row, importance []float32) {
		e.Encode(dst, row, importance)
		s := newSearch(e)
		for len(row) > 0 {
			n := min(len(s.weights), len(row))
			bytes := n / e.Elements * e.Bytes
			var p []float32
			if importance != nil {
				p, importance = importance[:n], importance[n:]
			}
			s.improve(dst[:bytes], row[:n], p)
			dst, row = dst[bytes:], row[n:]
		}
	}
	return &least
}

// sideBySide lists functions that encode each block as a row of its own, all at once: the kernels
// search many blocks as fast as one. Blocks of other encodings are encoded one by one.
var sideBySide = map[*Encoding]func(dst []byte, x, importance []float32){
	Q4_0: simple{bits: 4}.searchEach, Q4_1: simple{bits: 4, affine: true}.searchEach,
	Q5_0: simple{bits: 5}.searchEach, Q5_1: simple{bits: 5, affine: true}.searchEach,
	Q2_K: Q2_K.Encode, Q3_K: Q3_K.Encode, Q4_K: Q4_K.Encode, Q5_K: Q5_K.Encode, Q6_K: Q6_K.Encode,
}

// search has what improves some blocks.
type search struct {
	*Encoding
	tried   []byte    // blocks
	weights []float32 // weights of the squared errors
	decoded []float32 // elements of a block
	means   []float32 // of the squares, by block
	was     []measured
	best    []measured
}

func newSearch(e *Encoding) *search {
	n := max(atOnce/e.Elements, 1)
	return &search{
		e, make([]byte, n*e.Bytes), make([]float32, n*e.Elements), make([]float32, e.Elements),
		make([]float32, n), make([]measured, n), make([]measured, n),
	}
}

// encodeEach encodes blocks as if each were a row.
func (s *search) encodeEach(dst []byte, x, importance []float32) {
	if all := sideBySide[s.Encoding]; all != nil {
		all(dst, x, importance)
		return
	}
	for n := s.Elements; len(x) > 0; x, importance = x[n:], importance[n:] {
		s.Encode(dst[:s.Bytes], x[:n], importance[:n])
		dst = dst[s.Bytes:]
	}
}

// Means of squares beyond these are not searched.
const (
	leastMean = 0x1p-90
	mostMean  = 0x1p90
)

// improve replaces encoded blocks by better ones where the search finds any.
func (s *search) improve(blocks []byte, x, importance []float32) {
	n := len(x) / s.Elements
	from := 0 // first block since the last block that is not searched
	for i := range n + 1 {
		if i < n && s.searched(i, blocks, x, importance) {
			continue
		}
		if from < i {
			var p []float32
			if importance != nil {
				p = importance[from*s.Elements : i*s.Elements]
			}
			s.improveAll(blocks[from*s.Bytes:i*s.Bytes], x[from*s.Elements:i*s.Elements], p, from)
		}
		from = i + 1
	}
}

// searched measures block i. It reports whether better ones are looked for.
func (s *search) searched(i int, blocks []byte, x, importance []float32) bool {
	was, mean := s.measure(i, blocks, x, importance), sumSquares(x[i*s.Elements:][:s.Elements])/float32(s.Elements)
	s.was[i], s.best[i], s.means[i] = was, was, mean
	return was.squared > 0 && was.squared < math.MaxFloat64 && mean >= leastMean && mean <= mostMean
}

// improveAll replaces blocks by better ones; first is the number of the first block.
func (s *search) improveAll(blocks []byte, x, importance []float32, first int) {
	tried, weights, best := s.tried[:len(blocks)], s.weights[:len(x)], s.best[first:]
	try := func() {
		for i := range len(x) / s.Elements {
			m := s.measure(i, tried, x, importance)
			if m.squared <= s.was[first+i].squared && m.miss < best[i].miss {
				copy(blocks[i*s.Bytes:][:s.Bytes], tried[i*s.Bytes:])
				best[i] = m
			}
		}
	}
	for i, v := range x { // searches multiply the importance by about this root
		weights[i] = s.counts(importance, i, v) / sqrt(s.means[first+i/s.Elements]+float32(v*v))
	}
	s.encodeEach(tried, x, weights)
	try()
	for i, v := range x {
		weights[i] = s.counts(importance, i, v)
	}
	s.encodeEach(tried, x, weights)
	try()
	copy(tried, blocks)
	for i := range len(x) / s.Elements {
		for _, at := range multiples[s.Type] {
			d := tried[i*s.Bytes+at:]
			putHalf(d, float32(half(d)*best[i].stretch))
		}
	}
	try()
}

// counts is the weight of the squared error of element i of a block.
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

// measured has the errors of an encoded block.
type measured struct {
	squared float64 // |e|²
	miss    float64 // what LeastError makes small
	stretch float32 // factor that makes the block as long as the weights
}

// measure measures block i.
func (s *search) measure(i int, blocks []byte, x, importance []float32) measured {
	at := i * s.Elements
	s.Decode(s.decoded, blocks[i*s.Bytes:][:s.Bytes])
	var squared, xx, xy float64
	for j, v := range x[at:][:s.Elements] {
		w, a, b := float64(s.counts(importance, at+j, v)), float64(v), float64(s.decoded[j])
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
