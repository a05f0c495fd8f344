package layerfit

import (
	"context"

	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
)

// blocks is the coder of ggml's formats. An encoding makes blocks of each column. Then only codes and
// the scales of superblocks change. Mins are fixed: they are added to the weights of the panel's
// columns, so that codes times scales approximate the sums.
type blocks struct {
	panel    *panel
	encoding *ggml.Encoding
	row      int // elements of a column, padded to whole blocks

	rows       []float32 // padded columns, one after another
	importance []float32 // of a padded column
	packed     []byte
	kept       []byte // a copy of packed
	parts      ggml.Parts
	mins       []float32 // mins that were added to the weights, a row for each part
}

func (b *blocks) of(p *panel, f secondorder.Format) *blocks {
	w := p.weight
	b.panel, b.encoding, b.row = p, w.Encoding, int(w.Blocks()*w.Block)
	all := int64(b.row) * p.n
	buffer.Grow(&b.packed, all/w.Block*int64(b.encoding.Bytes))
	buffer.Grow(&b.parts.Codes, all)
	for _, x := range []*[]float32{&b.parts.Scales, &b.parts.Mins} {
		clear(buffer.Grow(x, all/w.Block))
	}
	for _, x := range []*[]byte{&b.parts.PartScales, &b.parts.PartMins} {
		buffer.Grow(x, all/int64(f.Block))
	}
	clear(buffer.Grow(&b.mins, int64(len(p.columns.Scales))))
	return b
}

func (b *blocks) mse(ctx context.Context) error {
	return b.encode(ctx, b.panel.weight.Importance)
}

func (b *blocks) weighted(ctx context.Context, importance []float32) error {
	if !finite(b.panel.columns.Weights) {
		return nil // an encoding refuses these
	}
	return b.encode(ctx, importance)
}

// encode encodes the columns as blocks, and sets the columns to the codes and scales of the blocks.
func (b *blocks) encode(ctx context.Context, importance []float32) error {
	c := &b.panel.columns
	b.addMins(-1)
	clear(buffer.Grow(&b.rows, int64(b.row*c.N)))
	for i := range c.K {
		for j, v := range c.Weights[i*c.N:][:c.N] {
			b.rows[j*b.row+i] = v
		}
	}
	if importance != nil {
		padded := buffer.Grow(&b.importance, int64(b.row))
		clear(padded[copy(padded, importance):])
		importance = padded
	}
	if err := quantize.EncodeRows(ctx, b.encoding, b.packed, b.rows, b.row, importance); err != nil {
		return err
	}
	form := b.encoding.Form
	form.Split(b.parts, b.packed)
	for i := range c.K {
		for j := range c.N {
			c.Codes[i*c.N+j] = b.parts.Codes[j*b.row+i]
		}
	}
	for i := range c.Scales {
		scale, least := b.part(i)
		c.Scales[i], b.mins[i] = scale, least
	}
	clear(c.Zeros)
	b.addMins(1)
	return nil
}

// leastScale stands for a scale of 0, which no weight can be divided by.
const leastScale = 0x1p-126

// part returns the scale and the min of one of the panel's parts.
func (b *blocks) part(i int) (scale, least float32) {
	form, n := b.encoding.Form, b.panel.columns.N
	at := i%n*(b.row/form.Part) + i/n
	block := at * form.Part / b.encoding.Elements
	scale, least = b.parts.Scales[block], b.parts.Mins[block]
	if form.Nested {
		code := float32(b.parts.PartScales[at])
		if form.Signed {
			code = float32(int8(b.parts.PartScales[at]))
		}
		scale *= code
		least *= float32(b.parts.PartMins[at])
	}
	if scale == 0 {
		scale = leastScale
	}
	return scale, least
}

// addMins adds the mins to the weights, or subtracts them.
func (b *blocks) addMins(sign float32) {
	c, part := &b.panel.columns, b.encoding.Form.Part
	for i := range c.K {
		for j, m := range b.mins[i/part*c.N:][:c.N] {
			c.Weights[i*c.N+j] += sign * m
		}
	}
}

// takeCodes makes blocks of the codes and scales that the columns have.
func (b *blocks) takeCodes() {
	c := &b.panel.columns
	for i := range c.K {
		for j := range c.N {
			b.parts.Codes[j*b.row+i] = c.Codes[i*c.N+j]
		}
	}
	if form := b.encoding.Form; !form.Nested {
		packing.Transpose(b.parts.Scales, c.Scales, b.row/form.Part, c.N)
	}
	b.encoding.Form.Join(b.packed, b.parts)
}

func (b *blocks) keep()    { copy(buffer.Grow(&b.kept, int64(len(b.packed))), b.packed) }
func (b *blocks) restore() { copy(b.packed, b.kept) }

func (b *blocks) decode(x []float32) {
	c := &b.panel.columns
	b.encoding.Decode(b.rows, b.packed)
	for i := range c.K {
		for j := range c.N {
			x[i*c.N+j] = b.rows[j*b.row+i]
		}
	}
}

func (b *blocks) write(to *quantize.Found) error {
	p := b.panel
	values := buffer.Grow(&p.by, int64(p.columns.K*p.columns.N))
	b.decode(values)
	return p.weight.WriteBlocks(to, p.at, p.n, b.packed, values)
}
