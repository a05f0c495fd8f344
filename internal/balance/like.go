package balance

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
)

// Like gives groups of x the factors that they have in y, a model that comes from it, and counts
// these groups. It returns x if there are none. A factor counts only if y has, bit for bit, what
// Scale makes of all numbers that it divides.
func Like(x, y *graph.Graph) (*graph.Graph, int, error) {
	groups := Find(x)
	factors := make([][]float32, len(groups))
	n := 0
	for i, g := range groups {
		var err error
		if factors[i], err = between(x, y, g); err != nil {
			return nil, 0, err
		}
		if factors[i] != nil {
			n++
		}
	}
	if n == 0 {
		return x, 0, nil
	}
	scaled, err := Scale(x, groups, factors)
	return scaled, n, err
}

// between returns the factors of a group, nil if it has none.
func between(x, y *graph.Graph, g Group) (factors []float32, err error) {
	other := false
	for i, p := range g.Divided {
		w := y.Scope(y.File.Proto.Graph).Values[p.Value.Name]
		if w == nil || w.Tensor == nil || !dtype.DType(w.Tensor.GetDataType()).Float() {
			return nil, nil
		}
		was, err := read(x, p.Value, g.Channels)
		if err != nil {
			return nil, err
		}
		is, err := read(y, w, g.Channels)
		if err != nil || is == nil {
			return nil, err
		}
		if i == 0 {
			factors = make([]float32, len(was))
			for j, v := range was {
				factors[j] = quotient(v, is[j])
				other = other || factors[j] != 1
			}
		}
		from, to := dtype.DType(p.Value.Tensor.GetDataType()), dtype.DType(w.Tensor.GetDataType())
		for j, v := range was {
			if to.Round(from.Round(v/factors[j])) != is[j] {
				return nil, nil
			}
		}
	}
	if !other {
		return nil, nil
	}
	return factors, nil
}

// quotient is the factor that makes a number of another one.
func quotient(was, is float32) float32 {
	if f := rounded(float64(was) / float64(is)); f > 0 && !math.IsInf(f, 0) {
		return float32(f)
	}
	return 1
}
