package blocks

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// Search finds the scale and the codes of a block by trying some scales. For a block w with error e it
// minimizes |e|² + ⟨w, e⟩²/|w|². Codes of the least |e|² alone are slightly shorter than the weights
// in every block, which would shrink the outputs of the layer. The second term is small if ŵ is as
// long as w. |e|² is never above that of the format's plain rule.
//
// It owns its buffers and is not for concurrent use.
type Search struct {
	Scale func(amax float32) float32 // the plain rule: the scale for a largest magnitude
	// Plain sets q to the codes of the plain rule and returns |e|². nil: they are those of Quantize.
	Plain func(q []byte, x, scale []float32) float64
	// Quantize sets q to the codes of a block with a scale, which is the only one, and adds errors.
	Quantize func(q []byte, x, scale []float32, errors *kernels.ErrorSums)
	// Tries appends the scales to try, which can be stored, given the scale of the plain rule.
	Tries func(scales []float32, scale float32) []float32
	// Errors sets each of e to |e|² of the codes that Quantize gives a block with a scale.
	Errors func(e []float64, x, scales []float32)

	Values *Values                     // of codes
	Codes  int                         // how many there are
	Outer  float32                     // scales are multiplied by it
	Type   dtype.DType                 // of decoded values
	Free   bool                        // scales may be any number of Type
	Store  func(scale float32) float32 // rounds a scale to one that can be stored

	scales  []float32 // that are tried
	squared []float64 // |e|² of each

	x       []float32
	amax    float32 // largest magnitude of x
	xx      float64 // ⟨w, w⟩
	worst   float64 // |e|² of the plain rule
	best    choice
	reach   float64 // largest magnitude of a value
	tried   []byte
	decoded []float32
	one     [1]float32 // a scale
	errors  kernels.ErrorSums
}

// choice is a scale with its codes.
type choice struct {
	q     []byte
	scale float32
	miss  float64 // what Search makes small
	order int     // when it was tried: of equal ones the first is taken
	products
}

// products has the products of w with the values v of codes, and of v with v.
type products struct{ xv, vv float64 }

// Fit sets q to the codes of x, a block of finite elements, and returns its scale. There is no
// zero point.
func (s *Search) Fit(q []byte, x []float32) (scale float32, zero byte) {
	if len(s.tried) < len(x) {
		s.tried, s.decoded = make([]byte, len(x)), make([]float32, len(x))
		s.reach = s.largestValue()
	}
	s.x, s.amax = x, kernels.AbsMax(0, x)
	s.best = choice{q: q[:len(x)], scale: s.Scale(s.amax), order: -1}
	s.worst = s.plain()
	if s.worst == 0 {
		return s.best.scale, 0
	}
	s.xx = squares(x)
	s.best.products = s.productsWith(s.best.q)
	s.best.miss = s.worst + s.stretch(s.best.products, s.best.scale)
	s.tryAll()
	if s.Free {
		s.refine()
	}
	return s.best.scale, 0
}

// plain sets the codes of the plain rule. It returns their |e|².
func (s *Search) plain() float64 {
	s.one[0] = s.best.scale
	if s.Plain != nil {
		return s.Plain(s.best.q, s.x, s.one[:])
	}
	return s.quantize(s.best.q)
}

// quantize sets q to the codes of the block with scale s.one, and returns |e|².
func (s *Search) quantize(q []byte) float64 {
	s.errors = kernels.ErrorSums{}
	s.Quantize(q, s.x, s.one[:], &s.errors)
	return s.errors.Squared()
}

// tryAll takes the best of the tries. It begins with the least |e|²: then the codes of most others
// need not be computed.
func (s *Search) tryAll() {
	s.scales = s.Tries(s.scales[:0], s.best.scale)
	n := 0
	for _, scale := range s.scales {
		if usable(scale) && s.clipped(scale) <= s.limit() {
			s.scales[n] = scale
			n++
		}
	}
	s.squared = slices.Grow(s.squared[:0], n)[:n]
	scales, e := s.scales[:n], s.squared
	s.Errors(e, s.x, scales)
	first := 0
	for i := range e {
		if e[i] < e[first] {
			first = i
		}
	}
	if n == 0 || e[first] > s.limit() {
		return
	}
	s.try(scales[first], first)
	for i := range n {
		if i != first && e[i] <= s.limit() {
			s.try(scales[i], i)
		}
	}
}

// limit is what |e|² of a better choice is not above.
func (s *Search) limit() float64 { return min(s.worst, s.best.miss) }

// try takes the codes of a scale if they are better than the best so far.
func (s *Search) try(scale float32, order int) {
	s.one[0] = scale
	tried := s.tried[:len(s.x)]
	e := s.quantize(tried)
	if !(e <= s.limit()) {
		return
	}
	p := s.productsWith(tried)
	miss := e + s.stretch(p, scale)
	if miss < s.best.miss || miss == s.best.miss && order < s.best.order {
		copy(s.best.q, tried)
		s.best.scale, s.best.miss, s.best.order, s.best.products = scale, miss, order, p
	}
}

// clipped returns a lower limit of |e|² for a scale: the error of the largest element, if it is beyond
// all codes. Decoded values are rounded, by at most 1/256 or, if they are tiny, half of 2^-24.
func (s *Search) clipped(scale float32) float64 {
	most := float64(s.reach*float64(scale*s.Outer)*(1+1./128)) + 0x1p-24
	beyond := float64(s.amax) - most
	if beyond <= 0 {
		return 0
	}
	return 0.999 * beyond * beyond
}

// largestValue is the largest magnitude of the value of a code.
func (s *Search) largestValue() (largest float64) {
	for _, v := range s.Values[:s.Codes] {
		if kernels.IsFinite(v) {
			largest = max(largest, float64(kernels.Abs(v)))
		}
	}
	return largest
}

// usable reports whether a scale is a finite normal number above 0.
func usable(scale float32) bool {
	return scale >= 0x1p-126 && !math.IsInf(float64(scale), 0)
}

// stretch is ⟨w, e⟩²/|w|².
func (s *Search) stretch(p products, scale float32) float64 {
	d := float64(float64(scale*s.Outer)*p.xv) - s.xx
	return float64(d*d) / s.xx
}

func squares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	return sum
}

func (s *Search) productsWith(q []byte) (p products) {
	for i, c := range q {
		x, v := float64(s.x[i]), float64(s.Values[c])
		p.xv, p.vv = p.xv+float64(x*v), p.vv+float64(v*v)
	}
	return p
}

// mostFits is how often the scale is fitted to the codes, and codes to the scale.
const mostFits = 4

// refine alternates a few times: the least-squares scale for the codes, and the codes for that scale.
// Finally it sets the scale for which ⟨w, ŵ⟩ = ⟨w, w⟩, unless the error would be too large.
func (s *Search) refine() {
	for range mostFits {
		before, scale := s.best.miss, s.Type.Round(float32(s.best.xv/s.best.vv))
		if !usable(scale) {
			break
		}
		if s.try(scale, len(s.scales)); s.best.miss == before {
			break
		}
	}
	if scale := s.Type.Round(float32(s.xx / s.best.xv)); usable(scale) && s.squaredError(scale) <= s.worst {
		s.best.scale = scale
	}
}

// squaredError is |e|² of the best codes with another scale.
func (s *Search) squaredError(scale float32) float64 {
	s.one[0] = scale
	DecodeBlocks(s.decoded[:len(s.x)], s.best.q, s.one[:], 1, len(s.x), len(s.x), s.Values, s.Type)
	squared, _, _ := kernels.Errors(s.x, s.decoded[:len(s.x)])
	return squared
}

// AnyScale returns Tries for formats whose scales are any numbers of type t: 20/32 … 51/32 of the
// scale of the plain rule.
func AnyScale(t dtype.DType) func(scales []float32, scale float32) []float32 {
	return func(scales []float32, scale float32) []float32 {
		for i := range 32 {
			scales = append(scales, t.Round(float32(float32(20+i)/32*scale)))
		}
		return scales
	}
}
