package compare

import (
	"context"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/provenance"
	"onnxquant/spec"
)

// factored is a weight whose channels have factors.
type factored struct {
	balance.Part
	channels int64
	of       string // what has the same factors
	rounds   bool   // the channels share scales, so rounding may change the size of a small one
}

// mayBeBalanced reports whether algorithm awq may have made a model, by its record. It takes data.
func mayBeBalanced(record []spec.Step) bool {
	return !slices.ContainsFunc(record, func(s spec.Step) bool { return s.Tool == "onnxquant" && s.Command == "convert" || len(s.Codes) > 0 }) ||
		slices.ContainsFunc(record, provenance.Calibrated)
}

// likeRecord returns a with the factors of channels that the record of b has. They are applied anew: whether a model with
// factors computes what a does follows from its structure, not from the record. It notes the weights with factors.
func (m *matcher) likeRecord(a, b *graph.Graph) (*graph.Graph, error) {
	exponents := balance.Between(a.File.Proto, b.File.Proto)
	x, err := balance.Apply(a, exponents)
	if err != nil {
		m.problem("the record of factors of channels: %v", err)
		return a, nil
	}
	if m.result.Balanced = len(exponents); len(exponents) > 0 {
		m.note("%s of channels divided by factors, by which the weights behind are multiplied", english.Plural(len(exponents), "activation or group is", "activations or groups are"))
	}
	for _, r := range balance.Regions(a) {
		if exponents[r.Name] == nil {
			continue
		}
		for _, p := range r.Divided {
			m.factor(p, r.Channels, recordOfFactors, false)
		}
		for _, p := range r.Multiplied {
			m.factor(p, r.Channels, recordOfFactors, true)
		}
	}
	return x, nil
}

const recordOfFactors = "the record of factors"

// factor notes that the channels of a weight have factors.
func (m *matcher) factor(p balance.Part, channels int64, of string, rounds bool) {
	if m.factored == nil {
		m.factored = map[string][]factored{}
	}
	key := keyOfValue(p.Value)
	m.factored[key] = append(m.factored[key], factored{p, channels, of, rounds})
}

// balanced notes the groups of a whose channels are scaled in b. The factors were read off the divided
// tensors; factors checks the weights.
func (m *matcher) balanced(groups []balance.Group) {
	if len(groups) == 0 {
		return
	}
	m.note("%s factors, by which the weights behind are multiplied", english.Plural(len(groups), "normalization is divided by", "normalizations are divided by"))
	for _, g := range groups {
		for _, w := range g.Weights {
			m.factor(w, g.Channels, "its normalization", false)
		}
	}
}

// channel has sums over the n elements w of a channel and their decoded values v.
type channel struct {
	n, ww, wv, vv, v4 float64
	largest, worst    float64 // magnitude of a decoded value, and of an error
}

// gain is what v must be multiplied by to have the least error.
func (c *channel) gain() float64 { return c.wv / c.vv }

// error is the squared error.
func (c *channel) error() float64 { return c.ww - 2*c.wv + c.vv }

// rounding is the largest error that rounding to 8 bits makes in the elements of channels that share scales with others: half
// a step. The elements of a small channel can all get another size by it.
func rounding(all []channel) float64 {
	const codes, slack = 127, 1.02
	top := 0.0
	for _, c := range all {
		top = max(top, c.largest)
	}
	return slack * top / codes / 2
}

// misfit returns by how many dB the error would shrink with the best gain. It is 0 if the channel has
// few large elements, or if most elements have about the same size: rounding may then enlarge all of
// them.
func (c *channel) misfit() float64 {
	const few, alike = 8, 0.7
	err, large := c.error(), c.vv*c.vv/c.v4 // large: about the number of large elements
	if !(large >= few && large <= alike*c.n) || err <= 0 {
		return 0
	}
	return 10 * math.Log10(err/max(c.ww-c.wv*c.wv/c.vv, 1e-99))
}

// size limits a channel that has the right factor, by the type of the codes: its gain is between least
// and most, or its misfit is small enough.
type size struct{ least, most, misfit float64 }

// sizeOf returns the limits for a type of codes. Rounding and clipping change sizes too.
// docs/verify.md has the values measured with awq.
func sizeOf(codes string) size {
	switch codes {
	case "INT2", "UINT2":
		return size{0.5, 1.5, 8.5}
	case "INT8", "UINT8":
		return size{0.95, 1.05, 3}
	}
	return size{0.85, 1.15, 5.5}
}

// factors reports a channel of quantized weight v, decoded, whose factor differs from the divisor of
// its normalization.
func (m *matcher) factors(v *graph.Value, x *lazy.Tensor, decoded elementReader, codes string) error {
	right := sizeOf(codes)
	for _, f := range m.factored[keyOfValue(v)] {
		all, err := m.sumChannels(f, x, decoded)
		if err != nil {
			return err
		}
		least := -1.0 // error that counts
		if f.rounds {
			least = rounding(all)
		}
		for i := range all {
			if c := &all[i]; c.misfit() > right.misfit && c.worst > least && (c.gain() < right.least || c.gain() > right.most) {
				m.problem("%s: channel %d is not scaled to match %s: times %.2g, it would match", msg.Quote(v.Path), i, f.of, c.gain())
				return nil
			}
		}
	}
	return nil
}

func (m *matcher) sumChannels(f factored, x *lazy.Tensor, decoded elementReader) ([]channel, error) {
	a, all := &lazy.Arena{}, make([]channel, f.channels)
	p, q := make([]float32, stretch), make([]float32, stretch)
	for at := int64(0); at < x.Size(); at += stretch {
		if m.ctx.Err() != nil {
			return nil, context.Cause(m.ctx)
		}
		n := min(stretch, x.Size()-at)
		if err := x.ReadAll(a, p[:n], at); err != nil {
			return nil, err
		}
		if err := decoded.ReadAll(a, q[:n], at); err != nil {
			return nil, err
		}
		for i := range n {
			c, w, v := &all[f.Channel(at+i, f.channels)], float64(p[i]), float64(q[i])
			c.n++
			c.ww += w * w
			c.wv += w * v
			c.vv += v * v
			c.v4 += v * v * v * v
			c.largest, c.worst = max(c.largest, math.Abs(v)), max(c.worst, math.Abs(v-w))
		}
	}
	return all, nil
}
