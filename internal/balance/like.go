package balance

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
)

// Like finds the factors that y, a model made from x, has for groups of x. It returns x scaled by
// these factors, with the groups; x itself if there are none. A factor counts only if all divided
// numbers of y equal, bit for bit, the results of Scale. The weights are not checked.
func Like(x, y *graph.Graph) (*graph.Graph, []Group, error) {
	var groups []Group
	var factors [][]float32
	for _, g := range Find(x) {
		switch f, err := between(x, y, g); {
		case err != nil:
			return nil, nil, err
		case f != nil:
			groups, factors = append(groups, g), append(factors, f)
		}
	}
	if len(groups) == 0 {
		return x, nil, nil
	}
	scaled, err := Scale(x, groups, factors)
	return scaled, groups, err
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
