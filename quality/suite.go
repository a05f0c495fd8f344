package quality

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"onnxquant/calib"
)

// Weights are values to try settings on: channels rows of equal length.
type Weights struct {
	Name     string
	Channels int
	Values   []float32
}

// SuiteWeights returns the four kinds of weights of the suite, 16 channels of 256 each:
// gaussian of deviation 0.02; uniform from -0.1 to 0.1; multi-channel, gaussian channels
// whose deviations go from 0.001 to 1 by equal factors; outliers, gaussian of deviation
// 0.02 but for one value of a hundred, which is 50 times as large. They are the same for
// the same seed.
func SuiteWeights(seed uint64) []Weights {
	const channels, length = 16, 256
	r := rand.New(rand.NewPCG(seed, 0))
	build := func(name string, value func(channel int) float64) Weights {
		w := Weights{name, channels, make([]float32, channels*length)}
		for i := range w.Values {
			w.Values[i] = float32(value(i / length))
		}
		return w
	}
	deviations := [channels]float64{0: 0.001}
	for i := 1; i < channels; i++ {
		deviations[i] = deviations[i-1] * 1.5848931924611136 // 1000^(1/15)
	}
	return []Weights{
		build("gaussian", func(int) float64 { return 0.02 * r.NormFloat64() }),
		build("uniform", func(int) float64 { return 0.2*r.Float64() - 0.1 }),
		build("multi-channel", func(c int) float64 { return deviations[c] * r.NormFloat64() }),
		build("outliers", func(int) float64 {
			v := 0.02 * r.NormFloat64()
			if r.IntN(100) == 0 {
				v *= 50
			}
			return v
		}),
	}
}

// Result is what a setting does to some weights.
type Result struct {
	Weights string
	Comparison
}

// Efficiency is the SQNR in dB for each bit that a value takes, scales included.
func (r Result) Efficiency() float64 { return r.Stats.SQNR * r.Compression / 32 }

// Suite tries 4 and 8 bits, symmetric and not, per tensor, channel and group of 32, on
// the weights.
func Suite(weights []Weights) ([]Result, error) {
	var settings []Setting
	for _, bits := range []int{4, 8} {
		for _, symmetric := range []bool{true, false} {
			s := calib.Scheme{Bits: bits, Symmetric: symmetric}
			settings = append(settings, Setting{s, calib.PerTensor, 0}, Setting{s, calib.PerChannel, 0}, Setting{s, calib.PerGroup, 32})
		}
	}
	var all []Result
	for _, w := range weights {
		found, err := Compare(w.Values, w.Channels, settings...)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			all = append(all, Result{w.Name, c})
		}
	}
	return all, nil
}

// BestBySQNR returns the result of the highest SQNR; there is at least one.
func BestBySQNR(results []Result) Result {
	return slices.MaxFunc(results, func(a, b Result) int { return cmp.Compare(a.Stats.SQNR, b.Stats.SQNR) })
}

// BestByMSE returns the result of the least mean squared error; there is at least one.
func BestByMSE(results []Result) Result {
	return slices.MinFunc(results, func(a, b Result) int { return cmp.Compare(a.Stats.MSE, b.Stats.MSE) })
}

// ByEfficiency returns the results, the most efficient first.
func ByEfficiency(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(b.Efficiency(), a.Efficiency()) })
}
