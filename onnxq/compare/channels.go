package compare

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/onnxq/provenance"
)

// factored is a weight whose channels have factors.
type factored struct {
	balance.Part
	channels int64
}

// mayBeBalanced reports whether algorithm awq may have made a model, by its record. It takes data.
func mayBeBalanced(record []provenance.Step) bool {
	return !slices.ContainsFunc(record, func(s provenance.Step) bool { return s.Tool == "onnxquant" && s.Command == "convert" }) ||
		slices.ContainsFunc(record, func(s provenance.Step) bool { return slices.Contains(strings.Fields(s.Options), "--calib") })
}

// balanced notes the groups of a that have factors in b. These were read off what they divide;
// factors tells whether the weights have them too.
func (m *matcher) balanced(groups []balance.Group) {
	if len(groups) == 0 {
		return
	}
	m.note("%s factors, by which the weights behind are multiplied", english.Plural(len(groups), "normalization is divided by", "normalizations are divided by"))
	m.factored = map[string]factored{}
	for _, g := range groups {
		for _, w := range g.Weights {
			m.factored[keyOfValue(w.Value)] = factored{w, g.Channels}
		}
	}
}

// channel has sums over the elements w of a channel, and v, what they became.
type channel struct{ ww, wv, vv, v4 float64 }

// gain is what v must be multiplied by to have the least error.
func (c *channel) gain() float64 { return c.wv / c.vv }

// misfit tells by how much, in dB, the error would be less with the best gain. It is 0 if the
// channel has few large elements: rounding may make all of these larger.
func (c *channel) misfit() float64 {
	const few = 8
	err := c.ww - 2*c.wv + c.vv
	if !(c.vv*c.vv >= few*c.v4) || c.vv == 0 || err <= 0 {
		return 0
	}
	return 10 * math.Log10(err/max(c.ww-c.wv*c.wv/c.vv, 1e-99))
}

// gains returns between which gains a channel has its right factor, by the type of the codes.
// Rounding and clipping change its size, too: 40 conversions with awq have 0.995 to 1.008 with 8 bits,
// 0.87 to 1.08 with 4 and 0.53 to 1.35 with 2.
func gains(codes string) (least, most float64) {
	switch codes {
	case "INT2", "UINT2":
		return 0.5, 1.5
	case "INT8", "UINT8":
		return 0.95, 1.05
	}
	return 0.85, 1.15
}

// factors reports a channel of quantized weight v, decoded, that has another factor than the one
// that its normalization is divided by. With the right one, the best gain makes the error less by
// 2.7 dB at most, by 5.2 dB with 2 bits.
func (m *matcher) factors(v *graph.Value, x *lazy.Tensor, decoded elementReader, codes string) error {
	f, there := m.factored[keyOfValue(v)]
	if !there {
		return nil
	}
	least, most := gains(codes)
	all, err := m.sumChannels(f, x, decoded)
	if err != nil {
		return err
	}
	for i := range all {
		if c := &all[i]; c.misfit() > 3 && (c.gain() < least || c.gain() > most) {
			m.problem("%s: channel %d has not the factor that its normalization is divided by: %.2g times as large, it would fit", msg.Quote(v.Path), i, c.gain())
			break
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
			c, w, v := &all[(at+i)/f.Inner%f.channels], float64(p[i]), float64(q[i])
			c.ww += w * w
			c.wv += w * v
			c.vv += v * v
			c.v4 += v * v * v * v
		}
	}
	return all, nil
}
