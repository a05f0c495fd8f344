package actpairs

import (
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/shapes"
)

// expansion has the scales of blocks of 4 bits: whole multiples, 1 to 16, of the scale of their channel (LPBQ, low
// power block quantization). Runtimes expand such codes to 8 bits with one scale per channel. They take a channel's
// largest scale / 16 as its scale, so one block of each channel has 16.
type expansion struct {
	from          *modelfile.Payload
	rows, k, cols int64 // the weight as [rows, k, cols], with blocks along k
	block, blocks int64 // size, and number along k
	byRow         bool  // channels are rows, not columns
	steps         []uint8
}

// Limits of codes and steps.
const (
	most4     = 7
	least4    = -8
	mostSteps = 16
)

// newExpansion takes the shape of a weight. Its channels are the axis before or behind that of the blocks.
func newExpansion(from *modelfile.Payload, dims []int64, along, block int) *expansion {
	e := &expansion{
		from: from, rows: shapes.Count(dims[:along]), k: dims[along], cols: shapes.Count(dims[along+1:]),
		block: int64(block), byRow: along > 0,
	}
	e.blocks = e.k / e.block
	e.steps = make([]uint8, e.rows*e.blocks*e.cols)
	return e
}

// fit finds the steps of each block and changes the scales of channels, by the squared error of the codes. params has
// scales of channels with which 16 steps reach the largest element.
func (e *expansion) fit(params []Params) error {
	sums := make([][shrinks]float64, len(params))
	err := e.each(func(x []float32, _, channel int64) {
		c := curveOf(x)
		for i := range sums[channel] {
			sums[channel][i] += c.least(float64(params[channel].Scale) * shrink(i))
		}
	})
	if err != nil {
		return err
	}
	for c := range params {
		best := 0
		for i, loss := range sums[c] {
			if loss < sums[c][best] {
				best = i
			}
		}
		params[c].Scale = short(float32(float64(params[c].Scale) * shrink(best)))
	}
	largest := make([]int64, len(params)) // the block of a channel with the largest steps, + 1
	err = e.each(func(x []float32, at, channel int64) {
		e.steps[at] = bestSteps(x, params[channel].Scale)
		if have := largest[channel]; have == 0 || e.steps[have-1] < e.steps[at] {
			largest[channel] = at + 1
		}
	})
	for _, at := range largest {
		if at > 0 {
			e.steps[at-1] = mostSteps
		}
	}
	return err
}

// short drops the last 4 bits of a scale: then its multiples up to 16 are exact.
func short(scale float32) float32 { return math.Float32frombits(math.Float32bits(scale) &^ 0xf) }

// shrinks is the number of factors of a channel's scale that fit tries.
const shrinks = 16

// shrink returns a factor, 1 and less. With 7/8 the largest element has code -8, or is clipped.
func shrink(i int) float64 { return 1 - float64(i)/40 }

// curve is the squared error of the codes of a block with some scales: shrink(i) · amax / 7.
type curve struct {
	unit   float64 // amax / 7
	losses [shrinks]float64
}

func curveOf(x []float32) (c curve) {
	if c.unit = float64(amaxOf(x)) / most4; c.unit == 0 {
		return c
	}
	for i := range c.losses {
		c.losses[i] = lossOf(x, float32(c.unit*shrink(i)))
	}
	return c
}

// least estimates the error with the best multiple of a scale.
func (c *curve) least(scale float64) float64 {
	if c.unit == 0 || !(scale > 0) {
		return 0
	}
	least := math.Inf(1)
	first, last := stepsFor(c.unit, scale)
	for n := first; n <= last; n++ {
		least = min(least, c.at(float64(n)*scale/c.unit))
	}
	return least
}

// at estimates the error with a scale, as a factor of amax / 7.
func (c *curve) at(factor float64) float64 {
	switch place := 40 * (1 - factor); {
	case place <= 0: // the codes are coarser, nothing is clipped
		return c.losses[0] * factor * factor
	case place >= shrinks-1:
		return c.losses[shrinks-1] * (1 + place - (shrinks - 1))
	default:
		i := int(place)
		return c.losses[i] + (place-float64(i))*(c.losses[i+1]-c.losses[i])
	}
}

// stepsFor returns the multiples of a scale that may be best for a block: from some that clip to the least that does
// not.
func stepsFor(unit, scale float64) (first, last int) {
	first, last = int(shrink(shrinks-1)*unit/scale), int(math.Ceil(unit/scale))
	return min(max(first, 1), mostSteps), min(max(last, 1), mostSteps)
}

// bestSteps returns the multiple of a scale with the least squared error of the codes of a block.
func bestSteps(x []float32, scale float32) (best uint8) {
	unit, least := float64(amaxOf(x))/most4, math.Inf(1)
	if unit == 0 || !(scale > 0) {
		return 1
	}
	first, last := stepsFor(unit, float64(scale))
	for n := first; n <= last; n++ {
		if loss := lossOf(x, scale*float32(n)); loss < least {
			best, least = uint8(n), loss
		}
	}
	return best
}

// amaxOf is the largest magnitude, 0 if there is NaN or infinity: such a weight gets no codes.
func amaxOf(x []float32) (amax float32) {
	for _, v := range x {
		if !kernels.IsFinite(v) {
			return 0
		}
		amax = max(amax, v, -v)
	}
	return amax
}

// lossOf is the squared error of the codes of a block with a scale.
func lossOf(x []float32, scale float32) (sum float64) {
	const magic = 1.5 * (1 << 23) // adding it rounds to nearest, ties to even
	inverse, total := 1/scale, float32(0)
	for _, v := range x {
		q := v * inverse
		if q > most4 {
			q = most4
		}
		if q < least4 {
			q = least4
		}
		d := v - float32((float32(q+magic)-magic)*scale)
		total += float32(d * d)
	}
	return float64(total)
}

// each calls do for each block, with its place among blocks.
func (e *expansion) each(do func(x []float32, at, channel int64)) error {
	width := min(max(chunk/e.block, 1), e.cols)
	x, block := make([]float32, width*e.block), make([]float32, e.block)
	for row := range e.rows {
		for b := range e.blocks {
			for col := int64(0); col < e.cols; col += width {
				n := min(width, e.cols-col)
				if err := e.read(x, (row*e.k+b*e.block)*e.cols+col, n); err != nil {
					return err
				}
				for c := range n {
					channel := col + c
					if e.byRow {
						channel = row
					}
					for i := range block {
						block[i] = x[int64(i)*n+c]
					}
					do(block, (row*e.blocks+b)*e.cols+col+c, channel)
				}
			}
		}
	}
	return nil
}

// read reads a block of n columns, which starts with element first.
func (e *expansion) read(x []float32, first, n int64) error {
	if n == e.cols {
		x = x[:n*e.block]
		err := buffer.ReadFull(e.from, kernels.Bytes(x), 4*first)
		kernels.FromFloat32(x)
		return err
	}
	for i := range e.block {
		part := x[i*n : (i+1)*n]
		if err := buffer.ReadFull(e.from, kernels.Bytes(part), 4*(first+i*e.cols)); err != nil {
			return err
		}
		kernels.FromFloat32(part)
	}
	return nil
}

// scales sets the scales of blocks from first on.
func (e *expansion) scales(dst []float32, first int64, params []Params) {
	for i := range dst {
		at := first + int64(i)
		channel := at % e.cols
		if e.byRow {
			channel = at / (e.blocks * e.cols)
		}
		dst[i] = params[channel].Scale * float32(e.steps[at])
	}
}
