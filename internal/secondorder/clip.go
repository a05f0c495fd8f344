package secondorder

import (
	"math"
	"slices"

	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
)

// Clip has the buffers of one worker.
type Clip struct {
	multiply linalg.Multiplier
	q, hx    []float32
}

const (
	clipSteps  = 24  // scales that are tried
	clipLeast  = 0.5 // smallest scale tried, relative to the scale that clips nothing
	clipBeside = 2   // zero points on either side of the usual one
	clipMost   = 2   // largest stored scale, relative to the scale that clips nothing
)

// ClipPasses is how many multiplications by H, k rows of k, take as long.
func ClipPasses(f Format, k int) float64 {
	const rounding = 64 // multiplications take as long as to round
	tries := 2.0
	if f.Codec.ZeroPoint {
		tries = 2*clipBeside + 1
	}
	return clipSteps * tries * float64(f.Block+rounding) / float64(k)
}

// Find sets the codes of columns, block by block, for the smallest output error of the block alone. It
// tries clipping ranges down to half of the full range and rounds to nearest. It takes the codes q
// whose outputs have the least angle to the outputs of the weights w. The scale wᵀHw/qᵀHw then makes
// the outputs as large as those of w.
func (p *Clip) Find(c *Columns, h []float32, f Format) {
	c.FitBlocks(f, f.Codec.Nearest())
	all := linalg.Of(h, c.K, c.K)
	for from := 0; from < c.K; from += f.Block {
		n := min(f.Block, c.K-from)
		at := from / f.Block * c.N
		b := clipped{
			Columns: Columns{
				n, c.N, c.Weights[from*c.N:][:n*c.N], c.Codes[from*c.N:][:n*c.N], c.Scales[at:][:c.N], c.Zeros[at:][:c.N],
			},
			format: f, h: all.Part(from, from, n, n), widest: slices.Clone(c.Scales[at:][:c.N]),
			usual: make([]int32, c.N), signal: make([]float64, c.N), share: make([]float64, c.N),
		}
		for j, z := range b.Zeros {
			b.usual[j] = f.zero(z)
		}
		for i, v := range p.outputs(b, b.Weights) {
			b.signal[i%c.N] += float64(v) * float64(b.Weights[i])
		}
		for step := range clipSteps {
			factor := float32(1 - (1-clipLeast)*float64(step)/clipSteps)
			switch {
			case f.Codec.ZeroPoint:
				for beside := int32(-clipBeside); beside <= clipBeside; beside++ {
					p.try(b, factor, beside)
				}
			case f.Positive:
				p.try(b, factor, 0)
			default:
				p.try(b, factor, 0)
				p.try(b, -factor, 0)
			}
		}
	}
}

// clipped is a block of each column, whose codes are looked for.
type clipped struct {
	Columns
	format Format
	h      linalg.Matrix
	widest []float32 // scales that clip nothing
	usual  []int32   // zero points of these
	signal []float64 // wᵀHw
	share  []float64 // wᵀHw times the squared cosine between the outputs of w and of the best codes so far
}

// outputs returns H·x. It is overwritten by the next call.
func (p *Clip) outputs(b clipped, x []float32) []float32 {
	to := buffer.Grow(&p.hx, int64(len(x)))
	clear(to)
	p.multiply.Add(linalg.Of(to, b.K, b.N), 1, b.h, linalg.Of(x, b.K, b.N))
	return to
}

// try tries a clipping range, relative to the widest, and a zero point, relative to the usual one, in
// all columns.
func (p *Clip) try(b clipped, factor float32, beside int32) {
	n := b.N
	q := buffer.Grow(&p.q, int64(b.K*n))
	least, greatest := b.format.Codec.Limits()
	for j, widest := range b.widest {
		inverse, z := 1/(widest*factor), b.usual[j]+beside
		from, to := float32(least-z), float32(greatest-z)
		for i := j; i < len(q); i += n {
			q[i] = nearest(b.Weights[i]*inverse, from, to)
		}
	}
	hq := p.outputs(b, q)
	for j := range n {
		z := b.usual[j] + beside
		if z < least || z > greatest {
			continue
		}
		var wq, qq float64
		for i := j; i < len(q); i += n {
			v := float64(hq[i])
			wq += float64(v * float64(b.Weights[i]))
			qq += float64(v * float64(q[i]))
		}
		share := float64(wq*wq) / qq
		if !(qq > 0 && share > b.share[j]) {
			continue
		}
		scale := b.format.scale(b.signal[j]/wq, factor > 0)
		if scale == 0 || math.Abs(float64(scale)) > clipMost*math.Abs(float64(b.widest[j])) {
			continue
		}
		b.share[j], b.Scales[j], b.Zeros[j] = share, scale, byte(z)
		for i := j; i < len(q); i += n {
			b.Codes[i] = byte(int32(q[i]) + z)
		}
	}
}
