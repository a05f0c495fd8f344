package secondorder

// fitLevels sets the scale and the codes of each block of Levels for the least squared error, weighted
// by the importance of each element. It tries scales near the known one, and the least-squares scale
// for the codes of each.
func (c *Columns) fitLevels(f Format, importance []float32) {
	x, tried, codes := make([]float32, min(f.Block, c.K)), make([]float32, min(f.Block, c.K)), make([]byte, min(f.Block, c.K))
	for from := 0; from < c.K; from += f.Block {
		n := min(f.Block, c.K-from)
		x, tried, codes := x[:n], tried[:n], codes[:n]
		scales := c.Scales[from/f.Block*c.N:][:c.N]
		for j, s := range scales {
			for i := range x {
				x[i] = c.Weights[(from+i)*c.N+j]
			}
			scales[j] = f.bestScale(x, tried, s, importance[from:])
			for i, v := range x {
				tried[i] = v / f.step(scales[j])
			}
			f.nearest(tried, nil)
			f.code(codes, tried, nil)
			for i, code := range codes {
				c.Codes[(from+i)*c.N+j] = code
			}
		}
	}
}

// The range of scales that bestScale tries, in 1/25 of the known scale.
const (
	leastTry = 15
	mostTry  = 40
)

// bestScale returns the best scale of a block near a known one. It overwrites tried.
func (f *Format) bestScale(x, tried []float32, known float32, importance []float32) float32 {
	best, most := known, 0.0 // most: decrease of the error, compared to codes of zero
	take := func(scale float32, xv, vv float64) {
		step := float64(f.step(scale))
		if gain := step * (float64(2*xv) - float64(step*vv)); gain > most {
			best, most = scale, gain
		}
	}
	var last float32
	for i := leastTry; i <= mostTry; i++ {
		scale := f.scale(float64(f.step(known))*float64(i)/25, true)
		if scale == 0 || scale == last {
			continue
		}
		last = scale
		inverse := 1 / f.step(scale)
		var xv, vv float64
		for i, w := range x {
			tried[i] = w * inverse
		}
		f.nearest(tried, nil)
		for i, v := range tried {
			weighted := float64(importance[i]) * float64(v)
			xv += float64(weighted * float64(x[i]))
			vv += float64(weighted * float64(v))
		}
		take(scale, xv, vv)
		take(f.scale(xv/vv, true), xv, vv) // f.scale returns 0 if no scale is usable, which gains nothing
	}
	return best
}
