// Package equalize chooses factors for the channels of activations that get static codes.
//
// [Choose] gets a region of package balance, what its channels have on samples, and how its activations and weights get
// codes. It returns the factors with the least error of the products behind the region, estimated from the steps of
// the codes: a step s makes an error of s²/12, at most the square of the value. Whether the outputs of the model get
// better is for the caller to measure.
//
// The factors that are tried are those of cross-layer equalization (Nagel and others, "Data-Free Quantization Through
// Weight Equalization and Bias Correction", 2019) and of SmoothQuant (Xiao and others, 2023) with several exponents, and
// factors for channels with outliers alone.
package equalize

import (
	"context"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/balance"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/work"
)

// Activation is what the channels of an activation of a region have, and how many steps its codes have.
type Activation struct {
	Value     *graph.Value
	Low, High []float32
	Square    []float64 // mean of the squares
	Steps     float64   // 0: it has no codes of its own
}

// Weight says how a stored tensor gets codes.
type Weight struct {
	Steps      float64 // of codes for a magnitude; 0: it has no codes
	Run, Count int64   // elements of Run after each other share a scale; there are Count scales
}

// Model says how the tensors of a model get codes.
type Model struct {
	Graph  *graph.Graph
	Weight func(v *graph.Value) Weight
}

// Choice are the factors of a region, and how much of the estimated error they leave.
type Choice struct {
	Exponents []int8
	Left      float64
}

// worth is the part of the error that factors must not leave.
const worth = 0.9

// Choose returns the best factors of a region; no Exponents if none are worth it.
func Choose(ctx context.Context, m Model, r balance.Region, acts []Activation) (Choice, error) {
	c := &chooser{Model: m, region: r, n: int(r.Channels), acts: acts}
	if !slices.ContainsFunc(acts, func(a Activation) bool { return a.Steps > 0 }) {
		return Choice{}, nil
	}
	for _, list := range []struct {
		operands []balance.Operand
		reads    bool
	}{{r.Readers, true}, {r.Makers, false}} {
		for _, o := range list.operands {
			t, err := c.tensor(ctx, o, list.reads)
			if err != nil {
				return Choice{}, err
			}
			if t != nil {
				c.tensors = append(c.tensors, t)
			}
		}
	}
	c.weigh()
	candidates := c.candidates()
	for _, t := range c.tensors {
		if t.Steps > 0 {
			if err := t.largest(ctx, m.Graph, candidates, r.Channels); err != nil {
				return Choice{}, err
			}
		}
	}
	best, none := 0, c.loss(candidates, 0)
	least := none
	for i := range candidates {
		if loss := c.loss(candidates, i); loss < least {
			best, least = i, loss
		}
	}
	if !(least < worth*none) {
		return Choice{}, nil
	}
	return Choice{candidates[best], least / none}, nil
}

type chooser struct {
	Model
	region  balance.Region
	n       int
	acts    []Activation
	tensors []*tensor
	gain    []float64 // by which an error of a channel is multiplied behind the region
}

// tensor is a stored tensor of the region.
type tensor struct {
	balance.Part
	Weight
	reads   bool
	act     *Activation
	squares []float64 // by channel
	count   []float64 // elements, by channel
	most    []float64 // largest magnitude, by channel
	energy  float64   // of the product
	scales  [][]float64
}

// of returns what the samples say of an activation, or nil.
func (c *chooser) of(v *graph.Value) *Activation {
	if i := slices.IndexFunc(c.acts, func(a Activation) bool { return a.Value == v }); i >= 0 {
		return &c.acts[i]
	}
	return nil
}

// tensor reads a stored tensor once; nil if nothing is known of its activation.
func (c *chooser) tensor(ctx context.Context, o balance.Operand, reads bool) (*tensor, error) {
	t := &tensor{Part: o.Part, Weight: c.Weight(o.Part.Value), reads: reads, act: c.of(o.Activation)}
	if t.act == nil {
		return nil, nil
	}
	t.squares, t.count, t.most = make([]float64, c.n), make([]float64, c.n), make([]float64, c.n)
	err := each(ctx, c.Graph, o.Part, func(x []float32, first int64) {
		for i, w := range x {
			ch := t.Channel(first+int64(i), c.region.Channels)
			t.squares[ch] += float64(w) * float64(w)
			t.count[ch]++
			t.most[ch] = max(t.most[ch], math.Abs(float64(w)))
		}
	})
	for ch, s := range t.squares {
		t.energy += s * t.act.Square[ch]
	}
	return t, err
}

// weigh finds how much an error of each channel does behind the region, relative to the products there.
func (c *chooser) weigh() {
	c.gain = make([]float64, c.n)
	for _, t := range c.tensors {
		for ch, s := range t.squares {
			if t.reads && t.energy > 0 {
				c.gain[ch] += s / t.energy
			}
		}
	}
}

// The exponents and limits that are tried.
var (
	powers = []float64{0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1}
	limits = []float64{0.5, 1, 2, 4, 8, 16}
)

// candidates returns exponents of factors; the first are those of no factors.
func (c *chooser) candidates() (all [][]int8) {
	act, weight := make([]float64, c.n), make([]float64, c.n) // by channel, relative to the largest
	for _, a := range c.acts {
		if a.Steps == 0 {
			continue
		}
		top := 0.0
		for ch := range c.n {
			top = max(top, reach(a, ch))
		}
		for ch := range c.n {
			if top > 0 {
				act[ch] = max(act[ch], reach(a, ch)/top)
			}
		}
	}
	for _, t := range c.tensors {
		if top := slices.Max(t.most); t.reads && top > 0 {
			for ch, m := range t.most {
				weight[ch] = max(weight[ch], m/top)
			}
		}
	}
	all = append(all, make([]int8, c.n))
	add := func(factor func(ch int) float64) {
		factors := make([]float64, c.n)
		for ch := range factors {
			if factors[ch] = 1; act[ch] > 0 && weight[ch] > 0 {
				factors[ch] = factor(ch)
			}
		}
		sorted := slices.Sorted(slices.Values(factors))
		middle := sorted[c.n/2]
		exponents := make([]int8, c.n)
		for ch, f := range factors {
			if act[ch] > 0 && weight[ch] > 0 {
				exponents[ch] = balance.Exponent(f / middle)
			}
		}
		if !slices.ContainsFunc(all, func(e []int8) bool { return slices.Equal(e, exponents) }) {
			all = append(all, exponents)
		}
	}
	for _, p := range powers {
		add(func(ch int) float64 { return math.Pow(act[ch], p) })
		add(func(ch int) float64 { return math.Pow(act[ch], p) / math.Pow(weight[ch], 1-p) })
	}
	middle := slices.Sorted(slices.Values(act))[c.n/2]
	for _, l := range limits {
		add(func(ch int) float64 { return max(1, act[ch]/(l*max(middle, 1e-9))) })
	}
	return all
}

// reach is the largest magnitude of a channel.
func reach(a Activation, ch int) float64 {
	return max(math.Abs(float64(a.Low[ch])), math.Abs(float64(a.High[ch])))
}

// largest finds the largest magnitudes of what shares a scale, for each candidate.
func (t *tensor) largest(ctx context.Context, x *graph.Graph, candidates [][]int8, channels int64) error {
	t.scales = make([][]float64, len(candidates))
	by := make([][]float32, len(candidates))
	for i, e := range candidates {
		t.scales[i], by[i] = make([]float64, t.Count), make([]float32, len(e))
		for ch, v := range e {
			if by[i][ch] = balance.Factor(v); !t.reads {
				by[i][ch] = 1 / by[i][ch]
			}
		}
	}
	return each(ctx, x, t.Part, func(x []float32, first int64) {
		for j, w := range x {
			at := first + int64(j)
			ch, scale := t.Channel(at, channels), at/t.Run%t.Count
			if w < 0 {
				w = -w
			}
			for i := range by {
				if v := float64(w * by[i][ch]); v > t.scales[i][scale] {
					t.scales[i][scale] = v
				}
			}
		}
	})
}

// loss estimates the error of the products behind the region, over that of none.
func (c *chooser) loss(candidates [][]int8, candidate int) (sum float64) {
	f2 := make([]float64, c.n) // squares of factors
	for ch, e := range candidates[candidate] {
		f := float64(balance.Factor(e))
		f2[ch] = f * f
	}
	for _, a := range c.acts {
		if a.Steps == 0 {
			continue
		}
		low, high := 0.0, 0.0
		for ch := range f2 {
			f := math.Sqrt(f2[ch])
			low, high = min(low, float64(a.Low[ch])/f), max(high, float64(a.High[ch])/f)
		}
		step := (high - low) / a.Steps
		for ch, f := range f2 {
			sum += min(f*step*step/12, a.Square[ch]) * c.gain[ch]
		}
	}
	for _, t := range c.tensors {
		if t.Steps == 0 || t.energy == 0 || t.Each == 1 && t.Count > 1 {
			continue // a scale for each channel of a depthwise convolution grows with its factor
		}
		if !t.reads {
			sum += c.ownLoss(t, f2, candidate)
			continue
		}
		squares := 0.0 // of the channels of the scaled activation
		for ch, f := range f2 {
			squares += t.act.Square[ch] / f
		}
		for _, largest := range t.scales[candidate] {
			step := largest / t.Steps
			sum += step * step / 12 * squares * float64(t.elements()) / float64(t.Count) / float64(c.n) / t.energy
		}
	}
	return sum
}

func (t *tensor) elements() (n int64) {
	for _, c := range t.count {
		n += int64(c)
	}
	return n
}

// ownLoss is the error that codes of a tensor make in the activations that it makes.
func (c *chooser) ownLoss(t *tensor, f2 []float64, candidate int) (sum float64) {
	if t.Count > 1 {
		return 0 // with a scale for each channel, factors change nothing
	}
	step := t.scales[candidate][0] / t.Steps
	for ch, f := range f2 {
		if t.squares[ch] > 0 { // the activation's square over the weight's is that of what is multiplied
			error := min(f*step*step/12*t.count[ch], t.squares[ch])
			sum += error * t.act.Square[ch] / t.squares[ch] * c.gain[ch]
		}
	}
	return sum
}

// chunk is the number of elements that are read at once.
const chunk = 1 << 16

// each reads a stored tensor of float32.
func each(ctx context.Context, x *graph.Graph, p balance.Part, do func(x []float32, first int64)) error {
	from, err := x.File.Payload(p.Value.Tensor)
	if err != nil {
		return err
	}
	raw, numbers := make([]byte, 4*chunk), make([]float32, chunk)
	for at, n := int64(0), from.Size()/4; at < n; at += chunk {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		k := min(chunk, n-at)
		if err := buffer.ReadFull(from, raw[:4*k], 4*at); err != nil {
			return err
		}
		dtype.Float32.Decode(numbers[:k], raw[:4*k])
		do(numbers[:k], at)
	}
	return nil
}
