// Package distribution compares outputs whose rows along the last axis are distributions over classes.
//
// A [Comparison] takes the outputs of two models, a run at a time, and keeps sums of them. The values show what rows are: they, or
// their exponentials, add up to 1; or each is the probability of yes.
package distribution

import (
	"math"
	"slices"
	"strings"

	"onnxquant/internal/run/execute"
)

// Kinds of distributions.
const (
	Probabilities    = "probabilities"
	LogProbabilities = "log-probabilities"
	Logits           = "logits"
	YesOrNo          = "probabilities of yes"
)

// Comparison compares an output in several runs. Its zero value is ready.
type Comparison struct {
	AreLogits bool // rows are logits, as they are if the name of the output says so
	Each      bool // the result has the divergence of each row

	classes                  int
	begun                    bool
	none                     bool // the output has no distributions
	probabilities, logs, yes sums
	exactLogs                bool         // all logs are log-probabilities
	undecided                [2][]float64 // values of both models that are not in yes, because all rows so far add up to 1
}

// mostUndecided is a number of probabilities. If so many are in rows that add up to 1, the rows are distributions.
const mostUndecided = 1 << 16

// Result is what rows have shown.
type Result struct {
	Kind          string
	Classes, Rows int
	Top1          float64   // share of rows whose most likely class is the same
	KL            float64   // mean KL divergence of the second model's rows from those of the first, in nats
	Divergences   []float64 // of rows, sorted, if they are asked for
	Information   float64   // mean KL divergence of the mean distribution from the rows of the first, in nats: what rows tell apart
}

// sums are of rows of a kind.
type sums struct {
	never       bool // the rows are of another kind
	rows, same  int
	kl, entropy float64
	mean        []float64 // of the first model's probabilities
	divergences []float64
	p, q        []float64
}

// Add takes an output of the first model, and that of the second.
func (c *Comparison) Add(want, got *execute.Tensor) {
	switch {
	case c.none:
		return
	case !c.begun:
		c.begun, c.exactLogs = true, true
		if c.none = len(want.Dims) == 0 || !want.IsFloat(); c.none {
			return
		}
		c.classes = int(want.Dims[len(want.Dims)-1])
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 1) }
	if len(want.Dims) == 0 || int(want.Dims[len(want.Dims)-1]) != c.classes || !got.IsFloat() || want.Len() != got.Len() {
		c.none = true
		return
	}
	if want.Len() == 0 { // no rows show nothing
		return
	}
	x, y := want.Float64s(), got.Float64s()
	if c.none = !all(x, finite) || !all(y, finite); c.none {
		return
	}
	kind := kindOf(x, c.classes)
	named := c.classes > 1 && (c.AreLogits || strings.Contains(strings.ToLower(want.Name), "logit"))
	c.exactLogs = c.exactLogs && kind == LogProbabilities
	c.add(&c.probabilities, x, y, c.classes, Probabilities, kind == Probabilities)
	c.add(&c.logs, x, y, c.classes, Logits, kind == LogProbabilities || named)
	c.addYes(x, y, !named)
}

// addYes takes probabilities of yes, once rows are known not to add up to 1.
func (c *Comparison) addYes(x, y []float64, fits bool) {
	c.yes.never = c.yes.never || !fits || !all(x, func(v float64) bool { return v >= 0 && v <= 1 })
	if !c.probabilities.never && len(c.undecided[0])+len(x) > mostUndecided {
		c.yes.never = true
	}
	held := c.undecided
	c.undecided = [2][]float64{}
	switch {
	case c.yes.never:
	case c.probabilities.never:
		c.add(&c.yes, withComplements(held[0]), withComplements(held[1]), 2, Probabilities, true)
		c.add(&c.yes, withComplements(x), withComplements(y), 2, Probabilities, true)
	default:
		c.undecided = [2][]float64{append(held[0], x...), append(held[1], y...)}
	}
}

// add takes rows, if they are of the kind.
func (c *Comparison) add(s *sums, x, y []float64, classes int, kind string, fits bool) {
	if s.never = s.never || !fits; s.never {
		return
	}
	if s.p == nil {
		s.p, s.q, s.mean = make([]float64, classes), make([]float64, classes), make([]float64, classes)
	}
	for at := 0; at+classes <= len(x); at += classes {
		logOf(s.p, x[at:at+classes], kind)
		logOf(s.q, y[at:at+classes], kind)
		if slices.Index(s.p, slices.Max(s.p)) == slices.Index(s.q, slices.Max(s.q)) {
			s.same++
		}
		for i, v := range s.p {
			e := math.Exp(v)
			s.mean[i] += e
			s.entropy -= e * v
		}
		kl := divergence(s.p, s.q)
		if s.kl += kl; c.Each {
			s.divergences = append(s.divergences, kl)
		}
		s.rows++
	}
}

// Result returns what the rows of all runs have shown. ok is false if they are no distributions.
func (c *Comparison) Result() (r Result, ok bool) {
	if c.none {
		return r, false
	}
	logs := Logits
	if c.exactLogs {
		logs = LogProbabilities
	}
	for _, k := range []struct {
		*sums
		kind string
	}{{&c.probabilities, Probabilities}, {&c.logs, logs}, {&c.yes, YesOrNo}} {
		if k.never || k.rows == 0 {
			continue
		}
		n := float64(k.rows)
		mean := slices.Clone(k.mean)
		for i := range mean {
			mean[i] /= n
		}
		slices.Sort(k.divergences)
		return Result{
			Kind: k.kind, Classes: len(k.mean), Rows: k.rows, Top1: float64(k.same) / n, KL: k.kl / n,
			Divergences: k.divergences, Information: max(entropyOf(mean)-k.entropy/n, 0),
		}, true
	}
	return r, false
}

// entropyOf returns the entropy of probabilities, in nats.
func entropyOf(p []float64) (sum float64) {
	for _, v := range p {
		if v > 0 {
			sum -= v * math.Log(v)
		}
	}
	return sum
}

// certain is the largest probability of yes or no. Float32 rounds those above to 1.
const certain = 1 - 1e-6

// withComplements makes two classes of each probability of yes.
func withComplements(x []float64) []float64 {
	both := make([]float64, 0, 2*len(x))
	for _, v := range x {
		v = min(max(v, 1-certain), certain)
		both = append(both, v, 1-v)
	}
	return both
}

func all(x []float64, ok func(float64) bool) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return !ok(v) })
}

// kindOf returns the kind of distribution that the values of x show, else "".
func kindOf(x []float64, classes int) string {
	const tolerance = 1e-2 // float16 rounds
	sumsToOne := func(of func(float64) float64) bool {
		for at := 0; at < len(x); at += classes {
			sum := 0.0
			for _, v := range x[at : at+classes] {
				sum += of(v)
			}
			if math.Abs(sum-1) > tolerance {
				return false
			}
		}
		return true
	}
	switch {
	case classes < 2:
	case all(x, func(v float64) bool { return v >= 0 }) && sumsToOne(func(v float64) float64 { return v }):
		return Probabilities
	case all(x, func(v float64) bool { return v <= 0 }) && sumsToOne(math.Exp):
		return LogProbabilities
	}
	return ""
}

// least replaces a probability of zero, whose logarithm is infinite.
const least = 1e-30

// logOf stores the logarithms of the probabilities of a row, which then add up to exactly 1.
func logOf(dst, row []float64, kind string) {
	for i, v := range row {
		if kind == Probabilities {
			v = math.Log(max(v, least))
		}
		dst[i] = max(v, -math.MaxFloat32)
	}
	top, sum := slices.Max(dst), 0.0
	for _, v := range dst {
		sum += math.Exp(v - top)
	}
	for i := range dst {
		dst[i] -= top + math.Log(sum)
	}
}

// divergence is Σ p·log(p/q), from logarithms. It is not negative except for rounding.
func divergence(p, q []float64) (kl float64) {
	for i := range p {
		kl += math.Exp(p[i]) * (p[i] - q[i])
	}
	return max(kl, 0)
}
