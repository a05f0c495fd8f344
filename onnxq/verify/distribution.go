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
	Information  float64      `json:"information"`    // mean KL divergence of the mean distribution from that of the reference, in nats: what rows tell apart
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
	yesOrNo          = "probabilities of yes"
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
	if !all(x, finite) || !all(y, finite) {
		return nil
	}
	if d.Kind = kindOf(x, d.Classes); d.Kind == "" {
		switch {
		case d.Classes > 1 && (areLogits || strings.Contains(strings.ToLower(first.Name), "logit")):
			d.Kind = logits
		case all(x, func(v float64) bool { return v >= 0 && v <= 1 }):
			x, y = withComplements(x), withComplements(y)
			d.Kind, d.Classes, d.Rows = yesOrNo, 2, len(x)/2
		default:
			return nil
		}
	}
	kind := d.Kind
	if kind == yesOrNo {
		kind = probabilities
	}
	same, sum := 0, 0.0
	divergences := make([]float64, 0, d.Rows)
	p, q, mean := make([]float64, d.Classes), make([]float64, d.Classes), make([]float64, d.Classes)
	entropy := 0.0
	for at := 0; at < len(x); at += d.Classes {
		logOf(p, x[at:at+d.Classes], kind)
		logOf(q, y[at:at+d.Classes], kind)
		if slices.Index(p, slices.Max(p)) == slices.Index(q, slices.Max(q)) {
			same++
		}
		for i, v := range p {
			mean[i] += math.Exp(v) / float64(d.Rows)
			entropy -= math.Exp(v) * v / float64(d.Rows)
		}
		kl := divergence(p, q)
		divergences = append(divergences, kl)
		sum += kl
	}
	slices.Sort(divergences)
	quantile := func(q float64) float64 { return divergences[int(math.Ceil(q*float64(d.Rows)))-1] }
	d.Top1 = float64(same) / float64(d.Rows)
	d.KLDivergence = KLDivergence{sum / float64(d.Rows), quantile(0.5), quantile(0.9), quantile(0.99), quantile(1)}
	d.Information = max(entropyOf(mean)-entropy, 0)
	return d
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
