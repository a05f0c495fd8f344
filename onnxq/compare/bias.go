package compare

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
)

// nearestBias reports whether w is a bias in int32 codes, has the scale of the product that it is
// added to, and differs from the float bias by rounding alone.
func (m *matcher) nearestBias(match *WeightMatch, w *graph.Value) bool {
	const rounding = 1e-3 // relative, of scales
	is := m.names[keyOfValue(w)]
	if is == nil || match.CodeType != dtype.Int32.String() || match.Broken > 0 || match.MaxError > (0.5+rounding)*is.Step || len(w.Uses) == 0 {
		return false
	}
	for _, u := range w.Uses {
		x, factor := m.b.Graph.Source(u.Node, 0), m.b.Graph.Source(u.Node, 1)
		if u.Input != 2 || x == nil || factor == nil {
			return false
		}
		activation, weight := m.pair(x), m.names[keyOfValue(unshaped(m.b.Graph, factor))]
		if activation == nil || weight == nil {
			return false
		}
		if product := activation.Step() * weight.Step; math.Abs(is.Step-product) > rounding*product {
			return false
		}
	}
	return true
}
