package verify

import (
	"math"
	"slices"
	"strings"

	"onnxquant/internal/run/execute"
)

// Distribution compares an output whose rows along the last axis are distributions over classes.
type Distribution struct {
	Kind         string       `json:"kind"` // how a row gives the distribution: probabilities, log-probabilities or logits
	Rows         int          `json:"rows"`
	Classes      int          `json:"classes"`
	Top1         float64      `json:"top1_agreement"` // share of rows whose most likely class is the same
	KLDivergence KLDivergence `json:"kl_divergence"`  // of the quantized distribution from that of the reference, in nats
}

// differs reports whether the classes differ from the reference. If many classes are about equally
// likely, as with random weights, the top class may change although the divergence is small.
func (d *Distribution) differs() bool {
	const (
		fewSame = 0.8
		muchKL  = 0.1 // nats; good conversions of real models have less than 0.02
	)
	return d.Top1 < fewSame && d.KLDivergence.Mean > muchKL
}

// KLDivergence has quantiles over the rows.
type KLDivergence struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// Kinds of distributions.
const (
	probabilities    = "probabilities"
	logProbabilities = "log-probabilities"
	logits           = "logits"
)

// compareDistributions compares the rows of output i of the runs b with the references a, if they are
// distributions. The values must show that: rows, or their exponentials, add up to 1. Logits are known
// by areLogits or by the output's name. Otherwise it returns nil.
func compareDistributions(a, b [][]*execute.Tensor, i int, areLogits bool) *Distribution {
	first := a[0][i]
	if len(first.Dims) == 0 || first.Len() == 0 || !first.IsFloat() {
		return nil
	}
	d := &Distribution{Classes: int(first.Dims[len(first.Dims)-1])}
	var x, y []float64
	for run := range a {
		p, q := a[run][i], b[run][i]
		if len(p.Dims) == 0 || int(p.Dims[len(p.Dims)-1]) != d.Classes || !q.IsFloat() || p.Len() != q.Len() {
			return nil
		}
		x, y = append(x, p.Float64s()...), append(y, q.Float64s()...)
	}
	d.Rows = len(x) / d.Classes
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 1) }
	if d.Classes < 2 || !all(x, finite) || !all(y, finite) {
		return nil
	}
	if d.Kind = kindOf(x, d.Classes); d.Kind == "" {
		if !areLogits && !strings.Contains(strings.ToLower(first.Name), "logit") {
			return nil
		}
		d.Kind = logits
	}
	same, sum := 0, 0.0
	divergences := make([]float64, 0, d.Rows)
	p, q := make([]float64, d.Classes), make([]float64, d.Classes)
	for at := 0; at < len(x); at += d.Classes {
		logOf(p, x[at:at+d.Classes], d.Kind)
		logOf(q, y[at:at+d.Classes], d.Kind)
		if slices.Index(p, slices.Max(p)) == slices.Index(q, slices.Max(q)) {
			same++
		}
		kl := divergence(p, q)
		divergences = append(divergences, kl)
		sum += kl
	}
	slices.Sort(divergences)
	quantile := func(q float64) float64 { return divergences[int(math.Ceil(q*float64(d.Rows)))-1] }
	d.Top1 = float64(same) / float64(d.Rows)
	d.KLDivergence = KLDivergence{sum / float64(d.Rows), quantile(0.5), quantile(0.9), quantile(0.99), quantile(1)}
	return d
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
	case all(x, func(v float64) bool { return v >= 0 }) && sumsToOne(func(v float64) float64 { return v }):
		return probabilities
	case all(x, func(v float64) bool { return v <= 0 }) && sumsToOne(math.Exp):
		return logProbabilities
	}
	return ""
}

// least replaces a probability of zero, whose logarithm is infinite.
const least = 1e-30

// logOf stores the logarithms of the probabilities of a row, which then add up to exactly 1.
func logOf(dst, row []float64, kind string) {
	for i, v := range row {
		if kind == probabilities {
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
