package verify

import (
	"math"

	"onnxquant/internal/run/distribution"
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

// compareDistributions compares the rows of output i of the runs b with the references a, if they are
// distributions; else it returns nil.
func compareDistributions(a, b [][]*execute.Tensor, i int, areLogits bool) *Distribution {
	c := distribution.Comparison{AreLogits: areLogits, Each: true}
	for run := range a {
		c.Add(a[run][i], b[run][i])
	}
	r, ok := c.Result()
	if !ok {
		return nil
	}
	quantile := func(q float64) float64 { return r.Divergences[int(math.Ceil(q*float64(r.Rows)))-1] }
	return &Distribution{r.Kind, r.Rows, r.Classes, r.Top1, KLDivergence{r.KL, quantile(0.5), quantile(0.9), quantile(0.99), quantile(1)}, r.Information}
}
