package synth

import (
	"math/rand/v2"
	"slices"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// content is what an image shows.
type content string

const (
	scene    content = "image of shapes"
	textLine content = "image of a line of text"
	glyph    content = "image of a character"
)

// imageContent decides what images show: a line of text for models that read text, one character for
// small images.
func (g *graph) imageContent(s *subject) {
	at := spatial(s)
	h, tall := execute.FixedSize(s.axes[at[0]])
	w, wide := execute.FixedSize(s.axes[at[1]])
	switch s.content = scene; {
	case tall && wide && h == w && h <= 32 && g.classes(2) && g.fewChannels(s):
		s.content = glyph
	case tall && wide && (w < 2*h || h > 64):
	case g.metadata("character") != "" || g.classes(3) && !(tall && wide && h == w):
		s.content = textLine
	}
}

func (g *graph) fewChannels(s *subject) bool {
	n, _ := execute.FixedSize(s.axes[s.axis])
	return n == 1
}

// classes reports whether the model has one output, of a rank, with classes along the last axis. With rank
// 3, the number of positions is free or follows from the size of the image.
func (g *graph) classes(rank int) bool {
	outputs := g.proto.GetOutput()
	if len(outputs) != 1 {
		return false
	}
	a := outputs[0].GetType().GetTensorType().GetShape().GetDim()
	if len(a) != rank {
		return false
	}
	n, fixed := execute.FixedSize(a[rank-1])
	free := func(d *onnxpb.TensorShapeProto_Dimension) bool {
		_, fixed := execute.FixedSize(d)
		return !fixed
	}
	return fixed && (rank == 2 || n >= 30 && slices.ContainsFunc(a[:2], free))
}

// pictures makes the images of a batch.
func (in *input) pictures(rng *rand.Rand, i int) []float64 {
	at := spatial(in.subject)
	h, w, channels := int(in.dims[at[0]]), int(in.dims[at[1]]), int(in.dims[in.axis])
	size := h * w * channels
	if size == 0 {
		return nil
	}
	n := int(product(in.dims)) / size
	x := make([]float64, 0, n*size)
	for k := range n {
		c := newCanvas(h, w)
		switch in.content {
		case textLine:
			c.line(rng)
		case glyph:
			c.single(rng, i*n+k)
		default:
			c.scene(rng)
		}
		x = append(x, in.pixels(c, rng, channels)...)
	}
	return x
}

// pixels returns the pixels of a canvas in the layout and range of the input.
func (in *input) pixels(c *canvas, rng *rand.Rand, channels int) []float64 {
	area := c.h * c.w
	x := make([]float64, area*channels)
	planes := in.axis < len(in.dims)-1
	for i := range area {
		p := c.px[i]
		for k := range channels {
			v := 1.0 // opaque
			switch {
			case channels == 1:
				v = (p[0] + p[1] + p[2]) / 3
			case k < 3:
				v = p[k]
			}
			if in.content != glyph {
				v += 0.01 * rng.NormFloat64()
			}
			v = in.lo + (in.hi-in.lo)*min(max(v, 0), 1)
			if planes {
				x[k*area+i] = v
			} else {
				x[i*channels+k] = v
			}
		}
	}
	return x
}
