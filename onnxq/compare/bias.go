package compare

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
)

// bias judges w, codes of a bias in int32. Operators on codes add them to the codes of a product, so their
// scale must be that of the product. It reports whether that is so, and whether the bias is rounded to nearest.
func (m *matcher) bias(match *WeightMatch, w *graph.Value) (fits, nearest bool) {
	const rounding, coarse = 1e-3, 0.01 // relative, of scales; half rounds them
	is := m.names[keyOfValue(w)]
	if is == nil || match.CodeType != dtype.Int32.String() || len(w.Uses) == 0 {
		return false, false
	}
	for _, u := range w.Uses {
		x, factor := m.b.Graph.Source(u.Node, 0), m.b.Graph.Source(u.Node, 1)
		if u.Input != 2 || x == nil || factor == nil {
			return false, false
		}
		activation, weight := m.pair(x), m.names[keyOfValue(unshaped(m.b.Graph, factor))]
		if activation == nil || weight == nil || weight.Step == 0 {
			return false, false
		}
		if product := activation.Step() * weight.Step; math.Abs(is.Step-product) > coarse*product {
			m.problem("%s: the scale of its codes is %.4g, that of the product that it is added to %.4g", msg.Quote(match.Name), is.Step, product)
			return false, false
		}
	}
	return true, match.Broken == 0 && match.MaxError <= (0.5+rounding)*is.Step
}
