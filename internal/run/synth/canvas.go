package synth

import (
	"math"
	"math/rand/v2"
)

// color has red, green and blue, from 0 to 1.
type color [3]float64

// canvas is an image that is drawn.
type canvas struct {
	h, w int
	px   []color
}

func newCanvas(h, w int) *canvas { return &canvas{h, w, make([]color, h*w)} }

// gradient fills the canvas with colors between four corners.
func (c *canvas) gradient(corners [4]color) {
	for y := range c.h {
		v := float64(y) / float64(c.h)
		for x := range c.w {
			u := float64(x) / float64(c.w)
			for k := range 3 {
				top := corners[0][k]*(1-u) + corners[1][k]*u
				bottom := corners[2][k]*(1-u) + corners[3][k]*u
				c.px[y*c.w+x][k] = top*(1-v) + bottom*v
			}
		}
	}
}

// fill paints the points within a box whose distance to a shape is negative. Edges are soft over one pixel.
func (c *canvas) fill(x0, y0, x1, y1 float64, paint color, distance func(x, y float64) float64) {
	clamp := func(v float64, most int) int { return min(max(int(v), 0), most) }
	for y := clamp(y0-1, c.h); y < clamp(y1+2, c.h); y++ {
		for x := clamp(x0-1, c.w); x < clamp(x1+2, c.w); x++ {
			alpha := min(max(0.5-distance(float64(x)+0.5, float64(y)+0.5), 0), 1)
			if alpha == 0 {
				continue
			}
			p := &c.px[y*c.w+x]
			for k := range 3 {
				p[k] += alpha * (paint[k] - p[k])
			}
		}
	}
}

func anyColor(rng *rand.Rand, lo, hi float64) color {
	gray, spread := lo+(hi-lo)*rng.Float64(), 0.25*(hi-lo)
	var c color
	for k := range c {
		c[k] = min(max(gray+spread*rng.NormFloat64(), 0), 1)
	}
	return c
}

// scene draws shapes with sharp edges on a smooth background, and a line of text.
func (c *canvas) scene(rng *rand.Rand) {
	const shapes = 8
	var corners [4]color
	for i := range corners {
		corners[i] = anyColor(rng, 0.1, 0.9)
	}
	c.gradient(corners)
	h, w := float64(c.h), float64(c.w)
	for range shapes {
		x, y := w*rng.Float64(), h*rng.Float64()
		a, b := w*(0.05+0.2*rng.Float64()), h*(0.05+0.2*rng.Float64())
		paint := anyColor(rng, 0, 1)
		if rng.IntN(2) == 0 {
			c.fill(x-a, y-b, x+a, y+b, paint, func(u, v float64) float64 {
				return max(math.Abs(u-x)-a, math.Abs(v-y)-b)
			})
			continue
		}
		c.fill(x-a, y-b, x+a, y+b, paint, func(u, v float64) float64 {
			return (math.Hypot((u-x)/a, (v-y)/b) - 1) * min(a, b)
		})
	}
	if size := h / 8; size >= 6 {
		c.text(rng, w*0.05, h*(0.1+0.6*rng.Float64()), size, w*0.9, anyColor(rng, 0, 0.3))
	}
}

// line draws a line of text that fills the canvas.
func (c *canvas) line(rng *rand.Rand) {
	paper, ink := anyColor(rng, 0.75, 1), anyColor(rng, 0, 0.25)
	if rng.IntN(4) == 0 {
		paper, ink = ink, paper
	}
	var corners [4]color
	for i := range corners {
		for k := range 3 {
			corners[i][k] = min(max(paper[k]+0.06*rng.NormFloat64(), 0), 1)
		}
	}
	c.gradient(corners)
	h, w := float64(c.h), float64(c.w)
	size := h * (0.55 + 0.15*rng.Float64())
	c.text(rng, 0.2*h, (h-size)/2, size, w-0.4*h, ink)
}

// single draws one white character on black.
func (c *canvas) single(rng *rand.Rand, i int) {
	h, w := float64(c.h), float64(c.w)
	size := h * (0.6 + 0.1*rng.Float64())
	c.glyph(i%10, (w-size*0.62)/2+h*0.03*rng.NormFloat64(), (h-size)/2, size, 0.1*size+0.5, color{1, 1, 1})
}

// text draws words of random characters into a row of the given height and width.
func (c *canvas) text(rng *rand.Rand, x, y, size, width float64, ink color) {
	thick := size * (0.09 + 0.04*rng.Float64())
	word := 3 + rng.IntN(5)
	for end := x + width - 0.6*size; x < end; {
		if word--; word == 0 {
			x, word = x+0.4*size, 3+rng.IntN(5)
			continue
		}
		c.glyph(rng.IntN(len(glyphs)), x, y, size, thick, ink)
		x += size * 0.82
	}
}

// glyph draws a character into a box of the given height, whose width is two thirds of that.
func (c *canvas) glyph(number int, x, y, size, thick float64, ink color) {
	unit := size / 6
	for _, stroke := range glyphs[number] {
		for i := range len(stroke)/2 - 1 {
			ax, ay := x+unit*float64(stroke[2*i]-'0'), y+unit*float64(stroke[2*i+1]-'0')
			bx, by := x+unit*float64(stroke[2*i+2]-'0'), y+unit*float64(stroke[2*i+3]-'0')
			r := thick / 2
			c.fill(min(ax, bx)-r, min(ay, by)-r, max(ax, bx)+r, max(ay, by)+r, ink, func(u, v float64) float64 {
				return toSegment(u, v, ax, ay, bx, by) - r
			})
		}
	}
}

// toSegment is the distance of a point to a line from a to b.
func toSegment(x, y, ax, ay, bx, by float64) float64 {
	dx, dy := bx-ax, by-ay
	t := 0.0
	if n := dx*dx + dy*dy; n > 0 {
		t = min(max(((x-ax)*dx+(y-ay)*dy)/n, 0), 1)
	}
	return math.Hypot(x-ax-t*dx, y-ay-t*dy)
}
