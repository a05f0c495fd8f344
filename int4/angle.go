package int4

import (
	"math"

	"onnxquant/internal/kernels"
)

// LeastAngle returns the Fitter that looks for the codes which lie closest to the direction of
// the block: seen as vectors, w and q - z have the least angle, and so, with the scale that suits
// them, the least squared error. It tries many scales, with a zero point several of those, in a
// symmetric format both signs of the scale unless positive is set.
//
// The scale is then the one for which ⟨w, ŵ⟩ = ⟨w, w⟩: codes of least squared error are shorter
// than the weights, and so would be the outputs. Where that costs more than is won, the scale is
// that of the least squared error. The error of a block is never above that of Nearest.
func (c Codec) LeastAngle(positive bool) Fitter {
	return &leastAngle{
		Codec: c, format: c.format(), positive: positive,
		lo: make([]float32, 1), hi: make([]float32, 1), scale: make([]float32, 1), zeroPoint: []byte{byte(c.middle())},
	}
}

type leastAngle struct {
	Codec
	format   kernels.Format
	positive bool

	lo, hi, scale []float32 // of the block, rounded to nearest
	zeroPoint     []byte
	sums          kernels.ErrorSums // unused

	rays      []ray
	base, top [2]int32 // least and greatest reach of a ray
	grown     [1 + 2*beyond]growth
	none      growth // zeros
	tried     []byte
}

// ray is a zero point, or a sign of the scale, that is tried: how far codes of positive and of
// negative elements reach, in magnitude.
type ray struct {
	reach    [2]int32
	negative bool // sign of the scale
}

// growth is how much ⟨|w|, q⟩ and ⟨q, q⟩ grow with each step of the sweep, from 1 on; at 0 is what
// they are before.
type growth [1 + sweepSteps]struct{ xq, qq float64 }

// sweepSteps is the number of scales that are tried.
const sweepSteps = 48

// zerosBeside is how many zero points are tried on either side of the usual one.
const zerosBeside = 3

// beyond is how much farther one ray may reach than another.
const beyond = 2 * zerosBeside

func (f *leastAngle) Fit(q []byte, x []float32) (float32, byte) {
	scale, zero := f.round(q, x)
	worst := f.squaredError(q, x, scale, f.zero(f.zeroPoint, 0))
	if worst == 0 {
		return scale, zero
	}
	f.aim()
	from, to := f.bounds(worst)
	f.sweep(x, from, to)
	best, inverse := f.longest(from, to)
	return f.settle(q, x, best, inverse, scale, zero, worst)
}

// round does what Nearest does.
func (f *leastAngle) round(q []byte, x []float32) (float32, byte) {
	f.lo[0], f.hi[0] = 0, 0
	f.ObserveBlocks(f.lo, f.hi, x, len(x), len(x))
	f.Scales(f.scale, f.zeroPoint, f.lo, f.hi)
	kernels.QuantizeBlock(q, x, f.scale, f.zeroPoint, f.format, &f.sums)
	return f.scale[0], f.zeroPoint[0]
}

// squaredError is the error of codes as they will be decoded.
func (f *leastAngle) squaredError(q []byte, x []float32, scale float32, zero int32) (sum float64) {
	least := f.format.Lo
	q = q[:len(x)]
	for i, v := range x {
		y := float32(int32(q[i]-byte(least))+least-zero) * scale
		if f.format.Type != kernels.Float32 {
			y = f.Type.Round(y)
		}
		d := float64(v) - float64(y)
		sum += float64(d * d)
	}
	return sum
}

// aim sets the rays that are tried: with zero points those near that of the block, else both signs.
func (f *leastAngle) aim() {
	least, greatest := f.limits()
	f.rays = f.rays[:0]
	if !f.ZeroPoint {
		half := (greatest - least + 1) / 2
		f.rays = append(f.rays, ray{reach: [2]int32{half - 1, half}})
		if !f.positive {
			f.rays = append(f.rays, ray{reach: [2]int32{half, half - 1}, negative: true})
		}
	} else {
		at := f.zero(f.zeroPoint, 0) - least
		for z := max(at-zerosBeside, 0); z <= min(at+zerosBeside, greatest-least); z++ {
			f.rays = append(f.rays, ray{reach: [2]int32{greatest - least - z, z}})
		}
	}
	f.base, f.top = f.rays[0].reach, f.rays[0].reach
	for _, r := range f.rays[1:] {
		for side, n := range r.reach {
			f.base[side], f.top[side] = min(f.base[side], n), max(f.top[side], n)
		}
	}
}

// bounds returns the least and the greatest inverse scale that are tried. A greater one clips
// so much that the error is above worst, a smaller one leaves codes unused.
func (f *leastAngle) bounds(worst float64) (from, to float64) {
	lo, hi := float64(f.lo[0]), float64(f.hi[0])
	amax := max(-lo, hi)
	steps := float64(int32(1)<<f.Bits - 1)
	span, lost := 2*amax, 2*math.Sqrt(worst) // one end is clipped, and the other then counts as well
	if f.ZeroPoint {
		span, lost = hi-lo, math.Sqrt(2*worst)
	}
	from = max((steps-5)/span, 0.5/amax)
	to = 4 * (steps + 1) / span
	if span > lost {
		to = min(to, (steps+1)/(span-lost))
	}
	return from, max(to, 1.01*from)
}

// sweep adds up how sums grow. With a growing inverse scale the codes of an element a grow by 1 at
// (k+½)/a: the sums of all scales come from one pass. What all rays reach is in the first growth.
// Growth i behind it has what a ray gains if positive elements reach i codes farther, and there are
// as many for negative ones.
func (f *leastAngle) sweep(x []float32, from, to float64) {
	clear(f.grown[:1+f.top[0]-f.base[0]])
	clear(f.grown[1+beyond:][:f.top[1]-f.base[1]])
	common := &f.grown[0]
	per := 1 / ((to - from) / sweepSteps)
	for _, v := range x {
		side := int32(math.Float32bits(v) >> 31)
		base, top := f.base[side], f.top[side]
		a := math.Abs(float64(v))
		first := int32(float64(a*from) + 0.5)
		k := min(first, base)
		n := float64(k)
		common[0].xq += float64(a * n)
		common[0].qq += float64(n * n)
		for ; k < top; k++ {
			step := 0
			if k >= first {
				at := (float64(k) + 0.5) / a
				if at >= to {
					break
				}
				step = 1 + min(int((at-from)*per), sweepSteps-1)
			}
			s := &common[step]
			if k >= base {
				s = &f.grown[1+beyond*side+k-base][step]
			}
			s.xq += a
			s.qq += float64(2*k + 1)
		}
	}
	for side, top := range f.top {
		rows := f.grown[1+beyond*side:][:top-f.base[side]]
		for i := 1; i < len(rows); i++ {
			for step, less := range rows[i-1] {
				rows[i][step].xq += less.xq
				rows[i][step].qq += less.qq
			}
		}
	}
}

// longest returns the best ray and its best inverse scale: those with the longest projection of w
// on the codes.
func (f *leastAngle) longest(from, to float64) (best *ray, inverse float64) {
	width := (to - from) / sweepSteps
	most, at := 0.0, 0 // square of the projection
	for i := range f.rays {
		r := &f.rays[i]
		common, up, down := &f.grown[0], &f.none, &f.none
		if farther := r.reach[0] - f.base[0]; farther > 0 {
			up = &f.grown[farther]
		}
		if farther := r.reach[1] - f.base[1]; farther > 0 {
			down = &f.grown[beyond+farther]
		}
		xq, qq := common[0].xq+up[0].xq+down[0].xq, common[0].qq+up[0].qq+down[0].qq
		for step := 1; step <= sweepSteps; step++ {
			xq += common[step].xq + up[step].xq + down[step].xq
			qq += common[step].qq + up[step].qq + down[step].qq
			if c := xq * xq; c > most*qq {
				most, best, at = c/qq, r, step
			}
		}
	}
	return best, from + float64(float64(at)*width)
}

// settle sets q to the codes of a ray if their error is not above worst, that of the codes in q.
func (f *leastAngle) settle(q []byte, x []float32, r *ray, inverse float64, scale float32, zero byte, worst float64) (float32, byte) {
	if r == nil {
		return scale, zero
	}
	if len(f.tried) < len(x) {
		f.tried = make([]byte, len(x))
	}
	tried := f.tried[:len(x)]
	z := f.middle()
	if f.ZeroPoint {
		least, _ := f.limits()
		z = r.reach[1] + least
	}
	var xx, xq, qq float64
	for i, v := range x {
		a, side := math.Abs(float64(v)), math.Float32bits(v)>>31
		n := min(int32(float64(a*inverse)+0.5), r.reach[side])
		m := float64(n)
		xx, xq, qq = xx+float64(a*a), xq+float64(a*m), qq+float64(m*m)
		if side != 0 != r.negative {
			n = -n
		}
		tried[i] = byte(n + z)
	}
	for _, s := range []float64{xx / xq, xq / qq} {
		if r.negative {
			s = -s
		}
		s := f.RoundScale(float32(s))
		if abs(s) >= 0x1p-126 && f.squaredError(tried, x, s, z) <= worst {
			copy(q, tried)
			return s, byte(z)
		}
	}
	return scale, zero
}
