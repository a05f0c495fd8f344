package onnxq

import (
	"context"
	"slices"

	"onnxquant/calib"
	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/quality"
)

// measure quantizes the weights of a conversion and tells how far what their codes stand
// for is from them, and writes nothing. Weights that cannot be quantized are missing.
func (c *conversion) measure(ctx context.Context, progress func(bytes int64)) (map[*weight]*quality.Sums, error) {
	e := newExecutor(c, nil, 0)
	if err := e.findWholes(ctx); err != nil {
		return nil, err
	}
	parts := make([]quality.Sums, len(e.tasks))
	err := eachTask(ctx, e.conv.workers, len(e.tasks), func(b *buffers, i int) error {
		t := &e.tasks[i]
		if t.tile.weight == nil || e.broken[t.tile.weight].Load() {
			return nil
		}
		finite, err := t.tile.measure(b, t.tile.chunks(e.conv.limit), &parts[i])
		if !finite {
			e.broken[t.tile.weight].Store(true)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		progress(t.cost())
		return err
	})
	if err != nil {
		return nil, err
	}
	sums := map[*weight]*quality.Sums{}
	for i, t := range e.tasks {
		if t.tile.weight == nil || e.broken[t.tile.weight].Load() {
			continue
		}
		if sums[t.tile.weight] == nil {
			sums[t.tile.weight] = &quality.Sums{}
		}
		sums[t.tile.weight].Merge(&parts[i])
	}
	for w, s := range sums {
		if s.Noise() >= 1 { // as a conversion has it
			delete(sums, w)
		}
	}
	return sums, nil
}

// measure adds up the errors of a tile. It reports whether all elements are finite.
func (t tile) measure(b *buffers, chunks []chunk, sums *quality.Sums) (finite bool, err error) {
	if t.encoding != nil {
		x, decoded, err := b.makeBlocks(t)
		if err != nil || decoded == nil {
			return false, err
		}
		sums.Add(x, decoded)
		return true, nil
	}
	if finite, err = t.findScales(b, chunks); !finite || err != nil {
		return finite, err
	}
	if err := t.narrow(b, chunks); err != nil {
		return true, err
	}
	t.codec.Scales(b.scale, b.zero, b.lo, b.hi)
	for _, c := range chunks {
		if len(chunks) > 1 {
			if err := b.load(t, c); err != nil {
				return true, err
			}
		}
		t.code(b, c)
		sums.Add(b.x, b.decoded)
	}
	return true, nil
}

// code sets the buffers to the codes of a chunk and to what they stand for.
func (t tile) code(b *buffers, c chunk) {
	buffer.Grow(&b.q, int64(len(b.x)))
	buffer.Grow(&b.decoded, int64(len(b.x)))
	if t.inner == 1 {
		k, block := int(min(c.n, t.k)), int(t.block)
		t.codec.EncodeBlocks(b.q, b.x, b.scale, b.zero, k, block)
		t.codec.DecodeBlocks(b.decoded, b.q, b.scale, b.zero, k, block)
		return
	}
	for s := range t.slabParts(b, c) {
		t.codec.EncodeColumns(s.q, s.x, s.scale, s.zero)
		t.codec.DecodeColumns(s.decoded, s.q, s.scale, s.zero)
	}
}

// Distribution tells how the values of a weight lie.
type Distribution struct {
	RMS         float64 `json:"rms"`               // root of the mean square
	Peak        float64 `json:"peak"`              // the largest magnitude
	Outliers    float64 `json:"outliers"`          // share of magnitudes above 6 times the root mean square
	Impact      float64 `json:"outlier_impact"`    // quality.OutlierImpact at 8 bits, percentile 99.9
	Sensitivity float64 `json:"scale_sensitivity"` // quality.ScaleSensitivity at 8 bits, for 1 %
}

// distribution reads a weight once more, into a histogram.
func (c *conversion) distribution(ctx context.Context, w *weight) (Distribution, error) {
	const precision = 12
	var d Distribution
	tiles := slices.Collect(w.tiles(c.limit))
	parts := make(chan *calib.Histogram, c.workers)
	for range c.workers {
		h, err := calib.NewHistogram(precision)
		if err != nil {
			return d, err
		}
		parts <- h
	}
	err := eachTask(ctx, c.workers, len(tiles), func(b *buffers, i int) error {
		h := <-parts
		defer func() { parts <- h }()
		for _, chunk := range tiles[i].chunks(c.limit) {
			if err := b.load(tiles[i], chunk); err != nil {
				return err
			}
			if err := h.Observe(b.x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	h := <-parts
	for range c.workers - 1 {
		h.Merge(<-parts)
	}
	return describeValues(h)
}

func describeValues(h *calib.Histogram) (d Distribution, err error) {
	r, err := h.Range()
	if err != nil {
		return d, err
	}
	d.Peak = max(-r.Min, r.Max)
	d.RMS = rootMeanSquare(h)
	const outlier = 6
	d.Outliers = h.Above(outlier * d.RMS)
	s := calib.Scheme{Bits: 8, Symmetric: true}
	if d.Impact, err = quality.OutlierImpact(h.All(), s, 99.9); err != nil {
		return d, err
	}
	d.Sensitivity, err = quality.ScaleSensitivity(h.All(), s, 0.01)
	d.Impact, d.Sensitivity = finite(d.Impact), finite(d.Sensitivity)
	return d, err
}

// sourceBytes is the content that a weight is read from.
func (w *weight) sourceBytes() int64 {
	n, _ := dtype.Elements(w.d.shape)
	return w.d.dtype.Bytes(n)
}
