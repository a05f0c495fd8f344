package blocks

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// Search finds the scale and the codes of a block by trying some scales. It looks for the least
// |e|² + ⟨w, e⟩²/|w|² for the error e of a block w. Codes of the least |e|² alone are a little
// shorter than the weights, in every block, and so would be the outputs of the layer: the second
// part is small if ŵ is as long as w. The error |e|² is never above that of the format's plain rule.
//
// It has buffers of its own: it is not for concurrent use.
type Search struct {
	Scale func(amax float32) float32 // that of the plain rule, for a largest magnitude
	// Plain sets q to the codes of the plain rule and returns |e|², if they are not those of Quantize.
	Plain func(q []byte, x, scale []float32) float64
	// Quantize sets q to the codes of a block with a scale, which is the only one, and adds errors.
	Quantize func(q []byte, x, scale []float32, errors *kernels.ErrorSums)
	// Tries calls try with some scales that can be stored, by that of the plain rule.
	Tries func(scale float32, try func(scale float32))

	Values *Values                     // of codes
	Codes  int                         // how many there are
	Outer  float32                     // scales are multiplied by it
	Type   dtype.DType                 // of decoded values
	Free   bool                        // scales may be any number of Type
	Store  func(scale float32) float32 // rounds a scale to one that can be stored

	x       []float32
	worst   float64 // |e|² of the plain rule
	best    choice
	tried   []byte
	decoded []float32
	one     [1]float32 // a scale
	errors  kernels.ErrorSums
	trying  func(scale float32) // the method try
}

// choice is a scale with its codes.
type choice struct {
	q     []byte
	scale float32
	miss  float64 // what Search makes small
}

// Fit sets q to the codes of x, a block of finite elements, and returns its scale. There is no
// zero point.
func (s *Search) Fit(q []byte, x []float32) (scale float32, zero byte) {
	if len(s.tried) < len(x) {
		s.tried, s.decoded, s.trying = make([]byte, len(x)), make([]float32, len(x)), s.try
	}
	s.x, s.best = x, choice{q: q[:len(x)], scale: s.Scale(kernels.AbsMax(0, x))}
	s.worst = s.plain()
	if s.worst == 0 {
		return s.best.scale, 0
	}
	s.best.miss = s.worst + s.stretch(s.best.q, s.best.scale)
	s.Tries(s.best.scale, s.trying)
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
	squared, _, _ := s.errors.Totals()
	return squared
}

// try takes the codes of a scale if they are better than the best so far.
func (s *Search) try(scale float32) {
	if !usable(scale) {
		return
	}
	s.one[0] = scale
	tried := s.tried[:len(s.x)]
	e := s.quantize(tried)
	if !(e <= s.worst && e < s.best.miss) {
		return
	}
	if miss := e + s.stretch(tried, scale); miss < s.best.miss {
		copy(s.best.q, tried)
		s.best.scale, s.best.miss = scale, miss
	}
}

// usable reports whether a scale is a finite normal number above 0.
func usable(scale float32) bool {
	return scale >= 0x1p-126 && !math.IsInf(float64(scale), 0)
}

// stretch is ⟨w, e⟩²/|w|².
func (s *Search) stretch(q []byte, scale float32) float64 {
	xx, xv, _ := s.products(q)
	d := float64(float64(scale*s.Outer)*xv) - xx
	return float64(d*d) / xx
}

// products are ⟨w, w⟩, ⟨w, v⟩ and ⟨v, v⟩, v being the values of codes.
func (s *Search) products(q []byte) (xx, xv, vv float64) {
	for i, c := range q {
		x, v := float64(s.x[i]), float64(s.Values[c])
		xx, xv, vv = xx+float64(x*x), xv+float64(x*v), vv+float64(v*v)
	}
	return xx, xv, vv
}

// mostFits is how often the scale is fitted to the codes, and codes to the scale.
const mostFits = 4

// refine gives codes the scale of least squares, and that scale its codes, a few times. The scale
// is then the one for which ⟨w, ŵ⟩ = ⟨w, w⟩, unless the error would be too large.
func (s *Search) refine() {
	for range mostFits {
		_, xv, vv := s.products(s.best.q)
		before := s.best.miss
		if s.try(s.Type.Round(float32(xv / vv))); s.best.miss == before {
			break
		}
	}
	xx, xv, _ := s.products(s.best.q)
	if scale := s.Type.Round(float32(xx / xv)); usable(scale) && s.squaredError(scale) <= s.worst {
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

// AnyScale returns the Tries of formats whose scales are numbers of type t: 20/32 … 51/32 of the
// scale of the plain rule.
func AnyScale(t dtype.DType) func(scale float32, try func(scale float32)) {
	return func(scale float32, try func(scale float32)) {
		for i := range 32 {
			try(t.Round(float32(float32(20+i) / 32 * scale)))
		}
	}
}
