package int4

import "math"

// LeastAngle returns the Fitter that looks for the codes which lie closest to the direction of
// the block: seen as vectors, w and q - z have the least angle, and so, with the scale that suits
// them, the least squared error. It tries many scales, with a zero point several of those, in a
// symmetric format both signs of the scale unless positive is set.
//
// The scale is then the one for which ⟨w, ŵ⟩ = ⟨w, w⟩: codes of least squared error are shorter
// than the weights, and so would be the outputs. Where that costs more than is won, the scale is
// that of the least squared error. The error of a block is never above that of Nearest.
func (c Codec) LeastAngle(positive bool) Fitter {
	return &leastAngle{Codec: c, nearest: c.Nearest(), positive: positive}
}

type leastAngle struct {
	Codec
	nearest  Fitter
	positive bool

	rays    []ray
	tried   []byte
	decoded []float32
}

// ray is a zero point, or a sign of the scale, that is tried: how far codes reach to either side
// of 0, and for each step of the sweep how much the sums grow.
type ray struct {
	up, down int32 // largest code - z of positive and of negative elements, in magnitude
	negative bool  // sign of the scale

	xq, qq   float64 // ⟨|w|, q⟩ and ⟨q, q⟩ at the first step
	dxq, dqq [sweepSteps]float64
}

// sweepSteps is the number of scales that are tried.
const sweepSteps = 48

// zerosBeside is how many zero points are tried on either side of the usual one.
const zerosBeside = 3

func (f *leastAngle) Fit(q []byte, x []float32) (float32, byte) {
	scale, zero := f.nearest.Fit(q, x)
	worst := f.squaredError(q, x, scale, zero)
	if worst == 0 {
		return scale, zero
	}
	f.aim(zero)
	from, to := f.bounds(x, worst)
	best, inverse := f.sweep(x, from, to)
	return f.settle(q, x, best, inverse, scale, zero, worst)
}

// squaredError is the error of codes as they will be decoded.
func (f *leastAngle) squaredError(q []byte, x []float32, scale float32, zero byte) (sum float64) {
	if len(f.decoded) < len(x) {
		f.decoded, f.tried = make([]float32, len(x)), make([]byte, len(x))
	}
	decoded := f.decoded[:len(x)]
	f.DecodeBlocks(decoded, q, []float32{scale}, []byte{zero}, len(x), len(x))
	for i, v := range x {
		d := float64(v) - float64(decoded[i])
		sum += float64(d * d)
	}
	return sum
}

// aim sets the rays that are tried: with zero points those near zero, else both signs.
func (f *leastAngle) aim(zero byte) {
	least, greatest := f.limits()
	f.rays = f.rays[:0]
	if !f.ZeroPoint {
		half := (greatest - least + 1) / 2
		f.rays = append(f.rays, ray{up: half - 1, down: half})
		if !f.positive {
			f.rays = append(f.rays, ray{up: half, down: half - 1, negative: true})
		}
		return
	}
	at := f.zero([]byte{zero}, 0) - least
	for z := max(at-zerosBeside, 0); z <= min(at+zerosBeside, greatest-least); z++ {
		f.rays = append(f.rays, ray{up: greatest - least - z, down: z})
	}
}

// bounds returns the least and the greatest inverse scale that are tried. A greater one clips
// so much that the error is above worst, a smaller one leaves codes unused.
func (f *leastAngle) bounds(x []float32, worst float64) (from, to float64) {
	var lo, hi float64
	for _, v := range x {
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
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

// sweep returns the best ray and its best inverse scale. With a growing inverse scale the codes
// of an element a grow by 1 at (k+½)/a: the sums of all scales come from one pass.
func (f *leastAngle) sweep(x []float32, from, to float64) (best *ray, inverse float64) {
	width := (to - from) / sweepSteps
	per := 1 / width
	most := int32(0)
	for i := range f.rays {
		most = max(most, f.rays[i].up, f.rays[i].down)
	}
	for _, v := range x {
		if v == 0 {
			continue
		}
		a := math.Abs(float64(v))
		first := int32(min(float64(a*from)+0.5, float64(most)))
		for i := range f.rays {
			r := &f.rays[i]
			n := float64(min(first, r.reach(v)))
			r.xq += float64(a * n)
			r.qq += float64(n * n)
		}
		for k := first; k < most; k++ {
			at := (float64(k) + 0.5) / a
			if at >= to {
				break
			}
			step := min(max(int((at-from)*per), 0), sweepSteps-1)
			grown := float64(2*k + 1)
			for i := range f.rays {
				if r := &f.rays[i]; k < r.reach(v) {
					r.dxq[step] += a
					r.dqq[step] += grown
				}
			}
		}
	}
	longest := 0.0 // square of the projection of w on the codes
	for i := range f.rays {
		r := &f.rays[i]
		xq, qq := r.xq, r.qq
		for step := range sweepSteps {
			xq, qq = xq+r.dxq[step], qq+r.dqq[step]
			if c := xq * xq; c > longest*qq {
				longest, best, inverse = c/qq, r, from+float64(float64(step+1)*width)
			}
		}
	}
	return best, inverse
}

// reach is the largest magnitude of a code of v.
func (r *ray) reach(v float32) int32 {
	if v > 0 {
		return r.up
	}
	return r.down
}

// settle sets q to the codes of a ray if their error is not above worst, that of the codes in q.
func (f *leastAngle) settle(q []byte, x []float32, r *ray, inverse float64, scale float32, zero byte, worst float64) (float32, byte) {
	if r == nil {
		return scale, zero
	}
	tried := f.tried[:len(x)]
	z := f.middle()
	if f.ZeroPoint {
		least, _ := f.limits()
		z = r.down + least
	}
	var xx, xq, qq float64
	for i, v := range x {
		a := math.Abs(float64(v))
		n := int32(min(float64(a*inverse)+0.5, float64(r.reach(v))))
		m := float64(n)
		xx, xq, qq = xx+float64(a*a), xq+float64(a*m), qq+float64(m*m)
		if v < 0 != r.negative {
			n = -n
		}
		tried[i] = byte(n + z)
	}
	for _, s := range []float64{xx / xq, xq / qq} {
		if r.negative {
			s = -s
		}
		s := f.RoundScale(float32(s))
		if abs(s) >= 0x1p-126 && f.squaredError(tried, x, s, byte(z)) <= worst {
			copy(q, tried)
			return s, byte(z)
		}
	}
	return scale, zero
}
