package calibrate

import (
	"context"
	"slices"

	"onnxquant/calib"
	"onnxquant/internal/run/execute"
)

// Clipped is a range of a value, and the method that finds it.
type Clipped struct {
	Method string
	Range  calib.Range
}

// The effort of Clippings. The squared error of a range takes time for each bucket, the entropy 0.1 s a value.
const (
	coarse      = 7 // bits of precision
	mostEntropy = 32
)

// clipping lists the methods of Clippings, besides the minimum and maximum.
var clipping = []string{"percentile:99.999", "percentile:99.99", "percentile:99.9", "mse", "entropy"}

// meanOfSamples is the mean of the samples' minima and maxima.
const meanOfSamples = "mean of samples"

// ClippingMethods lists the methods of Clippings in the order of its results: minmax is the first.
func ClippingMethods() []string { return slices.Concat([]string{"minmax", meanOfSamples}, clipping) }

// Clippings finds ranges of values by several methods in one pass over the data, for codes of a scheme. It
// returns a range for each of [ClippingMethods], within the minimum and maximum; a method that finds none has
// those, as has entropy with more than 32 names. A value that is empty, or not always finite, is not in the result.
func Clippings(ctx context.Context, path string, opts Options, names []string) (map[string][]Clipped, error) {
	r, err := open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer r.model.Close()
	found := map[string][]Clipped{}
	done := 0
	for part := range slices.Chunk(names, histograms) {
		seen := map[string]*clipped{}
		for _, name := range part {
			h, err := calib.NewHistogram(coarse)
			if err != nil {
				return nil, err
			}
			seen[name] = &clipped{Histogram: h, entropy: len(names) <= mostEntropy}
		}
		err := r.engine.Plain().Values(ctx, r.path, r.data, part, r.counting("comparing ranges", done, len(part), len(names)), func(v *execute.Tensor) error {
			return seen[v.Name].tensor(v)
		})
		if err != nil {
			return nil, err
		}
		for name, c := range seen {
			if all := c.ranges(opts.Scheme); all != nil {
				found[name] = all
			}
		}
		done += len(part)
	}
	return found, nil
}

// Clipper has histograms of values, for what Clippings returns without another pass over the data.
type Clipper struct {
	seen map[string]*clipped
}

// Ranges returns what Clippings does, for values that were observed.
func (c *Clipper) Ranges(s calib.Scheme, names []string) map[string][]Clipped {
	found := map[string][]Clipped{}
	for _, name := range names {
		v := c.seen[name]
		if v == nil {
			continue
		}
		v.entropy = len(names) <= mostEntropy
		if all := v.ranges(s); all != nil {
			found[name] = all
		}
	}
	return found
}

// mostClipped is the largest number of values whose histograms are kept: most take some 50 KiB each, none more than 512 KiB.
const mostClipped = 512

// RangesToClip is Ranges by minmax, with histograms unless there are too many values: then the Clipper is nil. Only values that are
// wanted are observed; nil: all.
func RangesToClip(ctx context.Context, path string, opts Options, wanted func(name string) bool) (*Result, *Clipper, error) {
	opts.Method = calib.Method{Name: "minmax"}
	c := &Clipper{map[string]*clipped{}}
	found, err := rangesOf(ctx, path, opts, wanted, c)
	if len(c.seen) == 0 {
		c = nil
	}
	return found, c, err
}

// add makes the histogram of a value.
func (c *Clipper) add(name string) (*clipped, error) {
	h, err := calib.NewHistogram(coarse)
	if err != nil {
		return nil, err
	}
	c.seen[name] = &clipped{Histogram: h}
	return c.seen[name], nil
}

// clipped observes a value.
type clipped struct {
	*calib.Histogram
	sample      calib.MinMax
	least, most float64 // sums over samples
	samples     int
	bad         bool
	entropy     bool // it may take its time
}

// tensor observes the value of one sample.
func (c *clipped) tensor(v *execute.Tensor) error {
	if !v.IsFloat() || len(v.Data) == 0 {
		return nil
	}
	var buf [1 << 12]float32
	for data := range slices.Chunk(v.Data, len(buf)*v.Size()) {
		x := buf[:len(data)/v.Size()]
		v.DType.Decode(x, data)
		if c.sample.Observe(x) != nil || c.Observe(x) != nil {
			c.bad = true
			return nil
		}
	}
	c.endSample()
	return nil
}

// endSample adds the minimum and maximum of a sample.
func (c *clipped) endSample() {
	if r, err := c.sample.Range(); err == nil {
		c.least, c.most, c.samples = c.least+r.Min, c.most+r.Max, c.samples+1
	}
	c.sample = calib.MinMax{}
}

// ranges returns the range of each method, or nil.
func (c *clipped) ranges(s calib.Scheme) []Clipped {
	whole, err := c.Range()
	if err != nil || c.bad {
		return nil
	}
	n := float64(c.samples)
	all := []Clipped{{"minmax", whole}, {meanOfSamples, calib.Range{Min: c.least / n, Max: c.most / n}}}
	for _, name := range clipping {
		within := whole
		if m, err := calib.ParseMethod(name); err == nil {
			if r, err := c.by(m, s); err == nil {
				within = calib.Range{Min: max(r.Min, whole.Min), Max: min(r.Max, whole.Max)}
			}
		}
		all = append(all, Clipped{name, within})
	}
	return all
}

// by returns the range of a method.
func (c *clipped) by(m calib.Method, s calib.Scheme) (calib.Range, error) {
	switch m.Name {
	case "mse":
		return c.MSE(s)
	case "entropy":
		if !c.entropy {
			return c.Range()
		}
		return c.Entropy(s)
	}
	return c.Percentile(m.Number)
}
