package layerfit

import (
	"context"

	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

// correct finds what the bias of a layer must add, so that the product has the mean that it has in the float model: the
// codes of the weight, and those of the activations before it, move that mean. target is the index of the layer among
// those that share its inputs. A correction that does not help the rows that are held out is dropped.
func (c *calibration) correct(ctx context.Context, layer, target int, parts []*moments) error {
	l, found := c.layers[layer], c.Found[layer]
	if !l.Bias || !c.Quantized || found == nil {
		return nil
	}
	w, n := l.Weight, l.columns()
	shift := make([]float32, n*len(parts))
	var before, after float64
	for part, m := range parts {
		t := m.targets[target]
		if m.rows == 0 || t.sum == nil {
			return nil
		}
		b := biased{m: m, target: t, shift: shift[part*n:][:n]}
		width := max(maxColumns/m.k, 1)
		for first := 0; first < n; first += width {
			if err := work.Stopped(ctx); err != nil {
				return err
			}
			columns := min(width, n-first)
			at := int64(part*n + first)
			decoded := make([]float32, m.k*columns)
			var raw []byte
			if err := w.ReadFound(found, &raw, decoded, at, int64(columns)); err != nil {
				return err
			}
			weights := make([]float32, m.k*columns)
			if err := w.ReadColumns(&raw, weights, at, int64(columns)); err != nil {
				return err
			}
			for i, v := range weights {
				decoded[i] -= v
			}
			b.find(decoded, first, columns)
		}
		before, after = before+b.before, after+b.after
	}
	if after < before {
		found.Shift = shift
		c.each[layer].Shifted = 1
	}
	return nil
}

// maxColumns bounds the elements of columns that are read at once.
const maxColumns = 1 << 20

// biased finds the shift of the columns of a part, and the squared errors of their products without and with it.
type biased struct {
	m             *moments
	target        *target
	shift         []float32
	before, after float64

	multiply linalg.Multiplier
}

// find takes the errors of n columns of a weight.
func (b *biased) find(by []float32, first, n int) {
	m, t := b.m, b.target
	mean := make([]float64, n)
	for j := range mean {
		mean[j] = t.sum[first+j]
	}
	for i, x := range m.sum {
		for j, v := range by[i*n:][:n] {
			mean[j] -= x * float64(v)
		}
	}
	for j, v := range mean {
		mean[j] = v / float64(m.rows)
		b.shift[first+j] = float32(mean[j])
	}
	rows := len(m.held) / m.k
	outputs := make([]float32, rows*n)
	b.multiply.Add(linalg.Of(outputs, rows, n), 1, linalg.Of(m.held, rows, m.k), linalg.Of(by, m.k, n))
	for r := range rows {
		y := t.held[r*t.n+first:]
		for j, v := range outputs[r*n:][:n] {
			e := float64(v) - float64(y[j])
			if m.centered {
				e -= mean[j]
			}
			b.before += e * e
			b.after += (e + mean[j]) * (e + mean[j])
		}
	}
}
