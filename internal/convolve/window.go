// Package convolve slides windows over images of float32: convolutions, their transposes, and pooling.
//
// A [Geometry] says which elements of an image a window covers. Images have channels with three spatial
// axes each, in row-major order; axes that a model lacks have size 1. The caller checks all sizes and owns
// all slices. Results have the same bits with any number of workers.
package convolve

// Geometry describes windows over the three spatial axes of an image.
type Geometry struct {
	In, Kernel, Out          [3]int
	Stride, Dilation, Before [3]int // Before is the padding in front
}

// Number is a type that windows compute with.
type Number interface{ float32 | float64 | int64 }

func volume(sizes [3]int) int { return sizes[0] * sizes[1] * sizes[2] }

// Taps is the number of elements of a kernel.
func (g *Geometry) Taps() int { return volume(g.Kernel) }

// place returns where a tap lies from the start of the image, in the window at the origin.
func (g *Geometry) place(tap int) (at [3]int) {
	if g.Kernel[0] == 1 && g.Kernel[1] == 1 {
		return [3]int{-g.Before[0], -g.Before[1], tap*g.Dilation[2] - g.Before[2]}
	}
	for a := 2; a >= 0; a-- {
		at[a] = tap%g.Kernel[a]*g.Dilation[a] - g.Before[a]
		tap /= g.Kernel[a]
	}
	return at
}

// short is how few numbers of sound are copied one by one.
const short = 8

// Row sets dst to the elements of a channel under a tap, for the windows from number first on. Elements
// outside of the image are outside.
func Row[T any](g *Geometry, dst, channel []T, tap, first int, outside T) {
	if len(dst) <= short && g.In[0] == 1 && g.In[1] == 1 && g.Kernel[0] == 1 && g.Kernel[1] == 1 && g.Out[2] >= first+len(dst) {
		at := first*g.Stride[2] + tap*g.Dilation[2] - g.Before[2]
		for i := range dst {
			if uint(at) < uint(g.In[2]) {
				dst[i] = channel[at]
			} else {
				dst[i] = outside
			}
			at += g.Stride[2]
		}
		return
	}
	g.eachLine(len(dst), tap, first, func(at, n, from int) {
		if line := dst[at:][:n]; from < 0 {
			fill(line, outside)
		} else if g.Stride[2] == 1 {
			copy(line, channel[from:])
		} else {
			for i := range line {
				line[i] = channel[from+i*g.Stride[2]]
			}
		}
	})
}

// AddRow is the transpose of Row: it adds src to the elements of the channel that Row reads.
func AddRow[T Number](g *Geometry, channel, src []T, tap, first int) {
	g.eachLine(len(src), tap, first, func(at, n, from int) {
		for i, v := range src[at:][:n] {
			if from >= 0 {
				channel[from+i*g.Stride[2]] += v
			}
		}
	})
}

// eachLine divides the elements that a tap meets in n windows into pieces of lines. A piece begins at
// number at of n; from is where its first element lies in the channel, -1 for outside.
func (g *Geometry) eachLine(n, tap, first int, do func(at, n, from int)) {
	place, width, stride := g.place(tap), g.Out[2], g.Stride[2]
	for at := 0; at < n; {
		line, column := (first+at)/width, (first+at)%width
		end := min(width, column+n-at)
		z, y := line/g.Out[1]*g.Stride[0]+place[0], line%g.Out[1]*g.Stride[1]+place[1]
		low, high := column, column
		if z >= 0 && z < g.In[0] && y >= 0 && y < g.In[1] {
			// The columns whose elements are inside: 0 ≤ column·stride + place < In.
			low = min(max(column, (max(-place[2], 0)+stride-1)/stride), end)
			high = min(max(low, (max(g.In[2]-place[2], 0)+stride-1)/stride), end)
		}
		for _, piece := range [3]struct{ from, to, at int }{
			{column, low, -1}, {low, high, (z*g.In[1]+y)*g.In[2] + low*stride + place[2]}, {high, end, -1},
		} {
			if piece.to > piece.from {
				do(at, piece.to-piece.from, piece.at)
				at += piece.to - piece.from
			}
		}
	}
}

func fill[T any](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}
