package scaletune

import (
	"io"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/quantize"
)

// layer is a weight whose scales are tuned.
type layer struct {
	Layer
	rounded func(scale float32) float32 // rounds a scale as it is stored
	codes   quantize.Stored             // in memory, if there is room

	first, scales, kept              []float32 // before, now, and the best ones
	factor, moment, square, gradient []float32 // of the logarithm of a scale
	buffers                          *buffers
}

// buffers are what the layers of a tuning share: they decode one after the other.
type buffers struct {
	elements []float32
	raw      []byte
	codes    int64 // more that may stay in memory
}

// mostInMemory limits the codes that stay in memory, of all weights together.
const mostInMemory = 64 << 20

func newLayer(given Layer, b *buffers) (*layer, error) {
	l := &layer{Layer: given, buffers: b}
	w, f := given.Weight, given.Found
	if w.Encoding != nil {
		return l, nil
	}
	n := w.Outer * w.Blocks() * w.Inner
	raw := make([]byte, 4*n)
	if err := buffer.ReadFull(f.Scales, raw, 0); err != nil {
		return nil, err
	}
	for _, x := range []*[]float32{&l.first, &l.scales, &l.kept, &l.factor, &l.moment, &l.square, &l.gradient} {
		*x = make([]float32, n)
	}
	dtype.Float32.Decode(l.first, raw)
	copy(l.scales, l.first)
	format := w.SecondOrder(w.Codec)
	l.rounded = format.Stored
	if l.codes = f.Codes; w.Elements() <= b.codes {
		b.codes -= w.Elements()
		codes := make(memory, w.Elements())
		if err := buffer.ReadFull(f.Codes, codes, 0); err != nil {
			return nil, err
		}
		l.codes = codes
	}
	return l, nil
}

// found is the weight's codes with some scales.
func (l *layer) found(codes quantize.Stored, scales []float32) *quantize.Found {
	raw := make(memory, 4*len(scales))
	dtype.Float32.Encode(raw, scales)
	return &quantize.Found{Codes: codes, Scales: raw, Zeros: l.Found.Zeros}
}

// best returns the codes with the best scales.
func (l *layer) best() *quantize.Found {
	if l.first == nil {
		return l.Found
	}
	return l.found(l.Found.Codes, l.kept)
}

// decode sets x to the elements of the weight.
func (l *layer) decode(x []float32) error {
	f := l.Found
	if l.first != nil {
		f = l.found(l.codes, l.scales)
	}
	raw := buffer.Grow(&l.buffers.raw, l.Weight.SourceBytes())
	if _, err := l.Weight.Decoded(f).ReadAt(raw, 0); err != nil && err != io.EOF {
		return err
	}
	l.Weight.DType.Decode(x, raw)
	return nil
}

// reduce adds the gradient of each scale's logarithm, which is the sum of gradients times elements over its block.
func (l *layer) reduce(g []float32) error {
	if l.first == nil {
		return nil
	}
	x := buffer.Grow(&l.buffers.elements, int64(len(g)))
	if err := l.decode(x); err != nil {
		return err
	}
	w := l.Weight
	blocks := w.Blocks()
	if w.Inner == 1 {
		for row := range w.Outer {
			for b := range blocks {
				from, to := row*w.K+b*w.Block, row*w.K+min((b+1)*w.Block, w.K)
				sum := float32(0)
				for i, v := range x[from:to] {
					sum += v * g[from:to][i]
				}
				l.gradient[row*blocks+b] += sum
			}
		}
		return nil
	}
	for o := range w.Outer {
		for k := range w.K {
			sums := l.gradient[(o*blocks+k/w.Block)*w.Inner:][:w.Inner]
			at := (o*w.K + k) * w.Inner
			row, slopes := x[at:][:w.Inner], g[at:][:w.Inner]
			for i, v := range row {
				sums[i] += v * slopes[i]
			}
		}
	}
	return nil
}

// store sets the scales to the first ones times their factors, as they will be stored.
func (l *layer) store() {
	for i, s := range l.first {
		stored := l.rounded(float32(float64(s) * math.Exp(float64(l.factor[i]))))
		if stored == 0 || stored-stored != 0 || stored > 0 != (s > 0) {
			stored = s
		}
		l.scales[i] = stored
	}
}

// memory is a quantize.Stored in memory.
type memory []byte

func (m memory) ReadAt(b []byte, off int64) (int, error) {
	if n := copy(b, m[min(off, int64(len(m))):]); n < len(b) {
		return n, io.EOF
	}
	return len(b), nil
}

func (m memory) WriteAt(b []byte, off int64) (int, error) { return copy(m[off:], b), nil }
