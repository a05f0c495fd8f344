package half

import (
	"math"

	"onnxquant/internal/graph"
)

// margin is the factor by which values may exceed the measured range in other runs.
const margin = 4

const (
	reasonMeasured  = "may overflow float16, by the ranges"
	reasonEstimated = "may overflow float16, by an estimate from the weights"
)

// largeValues finds the computed values that may exceed the range of half, with the reason: the
// measured range or, without one, the estimate.
func largeValues(t *typing, opts Options) map[*graph.Value]string {
	end := float64(largest(opts.To))
	large := map[*graph.Value]string{}
	for v, z := range estimate(t) {
		if v.Tensor != nil {
			continue
		}
		if opts.Ranges != nil {
			if r, ok := opts.Ranges.Of(v.Path, v.Name); ok {
				if math.Max(math.Abs(r.Min), math.Abs(r.Max)) > end/margin {
					large[v] = reasonMeasured
				}
				continue
			}
			if opts.Ranges.Lacks(v.Path, v.Name) {
				continue
			}
		}
		if z.gains > 0 && z.gains <= maxGains && z.rms > end/peak {
			large[v] = reasonEstimated
		}
	}
	return large
}
