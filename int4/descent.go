package int4

import "math"

// Descent finds the codes of a whole column, of several blocks, whose error e has a small eᵀHe:
// the error of a layer's output if H is the second moment of its inputs. It has buffers of its
// own: it is not for concurrent use.
type Descent struct {
	codec  Codec
	fitter Fitter
	h      []float32 // symmetric, positive definite, k rows of k
	block  int

	codes []float64 // q - z
	slope []float64 // H·e
	by    []float64 // of a block: how far elements move
}

// descentPasses is how often all codes are looked at.
const descentPasses = 4

// Descent returns a Descent for columns of k elements, h having k rows. It begins with the codes
// of LeastAngle.
func (c Codec) Descent(h []float32, k, block int, positive bool) *Descent {
	return &Descent{
		codec: c, fitter: c.LeastAngle(positive), h: h, block: block,
		codes: make([]float64, k), slope: make([]float64, k), by: make([]float64, min(k, block)),
	}
}

// Fit sets q to the codes of x, and scale and zero to those of its blocks. In each pass every
// code in turn becomes the best one while the others stay, and then every scale. No step makes
// the error larger.
func (d *Descent) Fit(q []byte, x, scale []float32, zero []byte) {
	for i := range scale {
		from, to := i*d.block, min((i+1)*d.block, len(x))
		scale[i], zero[i] = d.fitter.Fit(q[from:to], x[from:to])
	}
	d.begin(q, x, scale, zero)
	for range descentPasses {
		changed := d.moveCodes(scale, zero)
		if !d.moveScales(scale) && !changed {
			break
		}
	}
	for j, n := range d.codes {
		q[j] = byte(int32(n) + d.codec.zero(zero, j/d.block))
	}
}

// begin sets codes and slope.
func (d *Descent) begin(q []byte, x, scale []float32, zero []byte) {
	least, _ := d.codec.limits()
	clear(d.slope)
	for j, v := range x {
		s, z := scale[j/d.block], d.codec.zero(zero, j/d.block)
		n := int32(q[j])
		if least < 0 {
			n = int32(int8(q[j]))
		}
		d.codes[j] = float64(n - z)
		d.move(j, d.value(d.codes[j], s)-float64(v))
	}
}

// value is a code as it will be decoded.
func (d *Descent) value(code float64, scale float32) float64 {
	return float64(d.codec.Type.Round(float32(code) * scale))
}

// move adds the effect of an element's growth to the slope.
func (d *Descent) move(j int, by float64) {
	if by == 0 {
		return
	}
	row := d.h[j*len(d.slope):][:len(d.slope)]
	for i, h := range row {
		d.slope[i] += float64(by * float64(h))
	}
}

// moveCodes gives each code its best value. It reports whether any changed.
func (d *Descent) moveCodes(scale []float32, zero []byte) (changed bool) {
	least, greatest := d.codec.limits()
	for j, n := range d.codes {
		s, z := scale[j/d.block], d.codec.zero(zero, j/d.block)
		h := float64(d.h[j*len(d.codes)+j])
		best := math.RoundToEven(n - d.slope[j]/(h*float64(s)))
		best = min(max(best, float64(least-z)), float64(greatest-z))
		by := d.value(best, s) - d.value(n, s)
		if float64(2*by*d.slope[j])+float64(by*by*h) < 0 {
			d.codes[j], changed = best, true
			d.move(j, by)
		}
	}
	return changed
}

// moveScales gives each scale its best value. It reports whether any changed.
func (d *Descent) moveScales(scale []float32) (changed bool) {
	k := len(d.codes)
	for i, s := range scale {
		from, to := i*d.block, min((i+1)*d.block, k)
		copy(d.by, d.codes[from:to])
		down, curve := d.along(from, to)
		moved := d.codec.RoundScale(float32(float64(s) - down/curve))
		if !(moved*s > 0) || abs(moved) < 0x1p-126 || isInf(moved) {
			continue
		}
		for a, n := range d.codes[from:to] {
			d.by[a] = d.value(n, moved) - d.value(n, s)
		}
		if down, curve = d.along(from, to); !(2*down+curve < 0) {
			continue
		}
		for a := range to - from {
			d.move(from+a, d.by[a])
		}
		scale[i], changed = moved, true
	}
	return changed
}

// along returns the slope and the curvature of half the error in the direction of by, in a block.
func (d *Descent) along(from, to int) (slope, curve float64) {
	by := d.by[:to-from]
	for a, n := range by {
		slope += float64(n * d.slope[from+a])
		row := d.h[(from+a)*len(d.codes)+from:][:len(by)]
		var sum float64
		for b, m := range by {
			sum += float64(float64(row[b]) * m)
		}
		curve += float64(n * sum)
	}
	return slope, curve
}
