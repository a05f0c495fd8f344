package analyze

import (
	"context"
	"math"
	"sync"

	"onnxquant/calib"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
	"onnxquant/quality"
)

// measure quantizes the weights of a run and returns their errors: nil for weights that
// cannot be quantized. It writes nothing.
func measure(ctx context.Context, run *quantize.Run, workers int, progress func(bytes int64)) ([]*quality.Sums, error) {
	var mu sync.Mutex
	tell := func(bytes int64) {
		mu.Lock()
		defer mu.Unlock()
		progress(bytes)
	}
	if err := run.FindTensorScales(ctx, workers, func(int64) {}); err != nil {
		return nil, err
	}
	parts := make([]quality.Sums, len(run.Tiles))
	err := work.Each(ctx, workers, len(run.Tiles), func(ctx context.Context, b *quantize.Buffers, i int) error {
		err := run.Measure(ctx, b, i, &parts[i])
		tell(run.Tiles[i].SourceBytes())
		return err
	})
	if err != nil {
		return nil, err
	}
	sums := make([]*quality.Sums, len(run.Weights))
	for i := range parts {
		k := run.WeightOf(i)
		if sums[k] == nil {
			sums[k] = &quality.Sums{}
		}
		sums[k].Merge(&parts[i])
	}
	for k, s := range sums {
		if run.Broken(k) || s.Noise() >= 1 { // a conversion leaves them in float
			sums[k] = nil
		}
	}
	return sums, nil
}

// Distribution describes the values of a weight.
type Distribution struct {
	RMS         float64 `json:"rms"`               // root of the mean square
	Peak        float64 `json:"peak"`              // the largest magnitude
	Outliers    float64 `json:"outliers"`          // share of magnitudes above 6 times the root mean square
	Impact      float64 `json:"outlier_impact"`    // quality.OutlierImpact at 8 bits, percentile 99.9
	Sensitivity float64 `json:"scale_sensitivity"` // quality.ScaleSensitivity at 8 bits, for 1 %
}

// readLimit is the number of elements that a worker reads at once.
const readLimit = 1 << 18

// distribution reads a weight into a histogram and describes it.
func distribution(ctx context.Context, w *quantize.Weight, workers int) (Distribution, error) {
	const precision = 12
	var d Distribution
	run := quantize.NewRun([]*quantize.Weight{w}, readLimit)
	parts := make(chan *calib.Histogram, workers)
	for range workers {
		h, err := calib.NewHistogram(precision)
		if err != nil {
			return d, err
		}
		parts <- h
	}
	err := work.Each(ctx, workers, len(run.Tiles), func(ctx context.Context, b *quantize.Buffers, i int) error {
		h := <-parts
		defer func() { parts <- h }()
		return run.Read(ctx, b, i, h.Observe)
	})
	if err != nil {
		return d, err
	}
	h := <-parts
	for range workers - 1 {
		h.Merge(<-parts)
	}
	return describeValues(h)
}

// describeValues computes the distribution from a histogram.
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

func rootMeanSquare(h *calib.Histogram) float64 {
	sum := 0.0
	for v, n := range h.All() {
		sum += float64(v*v) * float64(n)
	}
	return math.Sqrt(sum / float64(max(h.Count(), 1)))
}

// finite replaces values that JSON does not have: NaN (nothing to compare) becomes 0,
// infinity the largest number.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -math.MaxFloat64), math.MaxFloat64)
}
