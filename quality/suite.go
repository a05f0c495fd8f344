package quality

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"onnxquant/calib"
)

// Weights are values to try settings on, one row per channel, all of equal length.
type Weights struct {
	Name     string
	Channels int
	Values   []float32
}

// SuiteWeights returns the weights of the suite, each 16 channels of 256 values:
//
//   - gaussian: standard deviation 0.02,
//   - uniform: from -0.1 to 0.1,
//   - multi-channel: Gaussian channels with standard deviations from 0.001 to 1, which
//     grow by a constant factor,
//   - outliers: gaussian, but one value of a hundred is multiplied by 50.
//
// The same seed gives the same weights.
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

// Result compares a setting with float on one of the suite's weights.
type Result struct {
	Weights string
	Comparison
}

// Efficiency returns the SQNR in dB per bit of storage of a value, scales included.
func (r Result) Efficiency() float64 { return r.Stats.SQNR * r.Compression / 32 }

// Suite quantizes the weights with 4 and 8 bits, symmetric and asymmetric, per tensor, per
// channel and per group of 32.
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

// BestBySQNR returns the result with the highest SQNR. It panics without results.
func BestBySQNR(results []Result) Result {
	return slices.MaxFunc(results, func(a, b Result) int { return cmp.Compare(a.Stats.SQNR, b.Stats.SQNR) })
}

// BestByMSE returns the result with the least mean squared error. It panics without
// results.
func BestByMSE(results []Result) Result {
	return slices.MinFunc(results, func(a, b Result) int { return cmp.Compare(a.Stats.MSE, b.Stats.MSE) })
}

// ByEfficiency returns the results sorted by Efficiency, the highest first.
func ByEfficiency(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(b.Efficiency(), a.Efficiency()) })
}
