package balance

import (
	"fmt"
	"math"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
)

// PerOctave is the number of factors between 1 and 2.
const PerOctave = 8

// Factor is the factor of an exponent: 2^(exponent/PerOctave).
func Factor(exponent int8) float32 { return float32(math.Exp2(float64(exponent) / PerOctave)) }

// Exponent is the exponent of the factor that is nearest to a number.
func Exponent(factor float64) int8 {
	e := math.Round(math.Log2(factor) * PerOctave)
	if math.IsNaN(e) {
		return 0
	}
	return int8(max(min(e, math.MaxInt8), -math.MaxInt8))
}

// Apply returns a graph whose activations are divided by factors. exponents has the exponents of the channels of
// regions, by their names. It returns x itself if there are none.
func Apply(x *graph.Graph, exponents map[string][]int8) (*graph.Graph, error) {
	if len(exponents) == 0 {
		return x, nil
	}
	contents := map[string]*content{}
	add := func(p Part, factors []float32, divide bool) {
		c := contents[p.Value.Name]
		if c == nil {
			c = &content{of: p.Value}
			contents[p.Value.Name] = c
		}
		c.by = append(c.by, scaling{p, factors, divide})
	}
	found := 0
	for _, r := range Regions(x) {
		of, ok := exponents[r.Name]
		if !ok {
			continue
		}
		if found++; int64(len(of)) != r.Channels {
			return nil, fmt.Errorf("%d factors for the %d channels of %s", len(of), r.Channels, msg.Quote(r.Name))
		}
		factors := make([]float32, len(of))
		for i, e := range of {
			factors[i] = Factor(e)
		}
		for _, p := range r.Divided {
			add(p, factors, true)
		}
		for _, p := range r.Multiplied {
			add(p, factors, false)
		}
	}
	if found < len(exponents) {
		return nil, fmt.Errorf("%d of %d places with factors are not in the model, or cannot have factors", len(exponents)-found, len(exponents))
	}
	return withContents(x, contents)
}
