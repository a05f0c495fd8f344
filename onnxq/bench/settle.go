package bench

import (
	"math"
	"slices"
	"time"

	"onnxquant/internal/run/execute/ort/wire"
)

// The figures are settled after leastRounds if the uncertainty is at most settledAt.
const (
	leastRounds = 10
	settledAt   = 0.01
)

// series has the measurements of a model. Times are in ms.
type series struct {
	runs []float64
	p50s []float64 // of each turn
	cpus []float64 // of a run, in each turn
}

func (s *series) add(t wire.Timing) {
	runs := make([]float64, len(t.Runs))
	for i, d := range t.Runs {
		runs[i] = milliseconds(d)
	}
	s.runs = append(s.runs, runs...)
	slices.Sort(runs)
	s.p50s = append(s.p50s, quantile(runs, 0.5))
	s.cpus = append(s.cpus, milliseconds(t.CPU)/float64(max(len(runs), 1)))
}

// fill fills in the figures of a model. Its ratios are to the turns of the first model, which are as near in
// time as can be: what disturbs the machine for longer than a round changes them little.
func (s *series) fill(m *Model, first *series) {
	sorted := slices.Sorted(slices.Values(s.runs))
	m.Runs, m.P50, m.P90, m.CPU = len(sorted), quantile(sorted, 0.5), quantile(sorted, 0.9), median(s.cpus)
	m.Ratio, m.CPURatio = median(ratios(s.p50s, first.p50s)), median(ratios(s.cpus, first.cpus))
}

// ratios divides the figures of turns, round by round.
func ratios(x, first []float64) []float64 {
	list := make([]float64, len(x))
	for i := range x {
		list[i] = ratio(x[i], first[i])
	}
	return list
}

// uncertainty is the largest standard error of the p50 of a model, or of its ratio to the first model's,
// relative to the value. A turn of every model is one observation.
func uncertainty(all []series) float64 {
	worst := 0.0
	for i := range all {
		worst = max(worst, standardError(all[i].p50s))
		if i > 0 {
			worst = max(worst, standardError(ratios(all[i].p50s, all[0].p50s)))
		}
	}
	return worst
}

// standardError estimates the relative standard error of the median of x. It uses the median of the
// deviations, which a few disturbed turns do not change.
func standardError(x []float64) float64 {
	middle := median(x)
	if len(x) < 2 || middle <= 0 {
		return 1
	}
	deviations := make([]float64, len(x))
	for i, v := range x {
		deviations[i] = math.Abs(v - middle)
	}
	sigma := 1.4826 * median(deviations) // of a normal distribution
	return math.Min(1.2533*sigma/math.Sqrt(float64(len(x)))/middle, 1)
}

func median(x []float64) float64 { return quantile(slices.Sorted(slices.Values(x)), 0.5) }

// quantile interpolates between the elements of a sorted list; 0 without elements.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// ratio is 0 if it is not known.
func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
