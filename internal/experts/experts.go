// Package experts computes what all implementations of a mixture of experts (MoE) have in common: which
// experts a row goes to, and the activation between the two products of an expert.
package experts

import (
	"cmp"
	"math"
	"slices"
)

// Route chooses k experts by the logits of a row, and says how much of its output each makes: its share in
// the softmax of all, or of the chosen ones.
func Route(logits []float64, k int, normalize bool) (chosen []int, shares []float64) {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(logits[j], logits[i]), j-i) })
	all, top := 0.0, 0.0
	for i, expert := range order {
		e := math.Exp(logits[expert] - logits[order[0]])
		all += e
		if i < k {
			chosen, shares, top = append(chosen, expert), append(shares, e), top+e
		}
	}
	if normalize {
		all = top
	}
	for i := range shares {
		shares[i] /= all
	}
	return chosen, shares
}

// Activation is what an expert does to the product with fc1, with the attributes of com.microsoft's MoE.
type Activation struct {
	Type        string // activation_type
	Alpha, Beta float64
	Limit       float64 // swiglu_limit
	Fusion      int64   // swiglu_fusion: 1: gates and values in turn; 2: all gates, then all values; 0: fc3 makes the values
}

const swiglu = "swiglu"

// functions are the activation types that take a number each.
var functions = map[string]func(x float64) float64{
	"relu":     func(x float64) float64 { return max(x, 0) },
	"silu":     func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"identity": func(x float64) float64 { return x },
	"gelu": func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+float64(0.044715*x*x*x))))
	},
}

// Known reports whether Apply computes the activation, with fc3 or without.
func (a Activation) Known(fc3 bool) bool {
	if a.Type == swiglu {
		return fc3 == (a.Fusion == 0) && a.Fusion >= 0 && a.Fusion <= 2
	}
	return functions[a.Type] != nil
}

// Doubles reports whether fc1 makes two numbers for each that fc2 takes.
func (a Activation) Doubles() bool { return a.Type == swiglu && a.Fusion != 0 }

// Apply returns what fc2 multiplies, for the products of a row with fc1 and fc3, nil without fc3. It may change h.
func (a Activation) Apply(h, fc3 []float64) []float64 {
	if a.Type == swiglu {
		return a.gated(h, fc3)
	}
	f := functions[a.Type]
	for i, v := range h {
		h[i] = f(v)
		if fc3 != nil {
			h[i] *= fc3[i]
		}
	}
	return h
}

// gated is swiglu: gates times values.
func (a Activation) gated(h, fc3 []float64) []float64 {
	n := len(h)
	if a.Doubles() {
		n /= 2
	}
	for i := range n {
		var gate, value float64
		switch a.Fusion {
		case 1:
			gate, value = h[2*i], h[2*i+1]
		case 2:
			gate, value = h[i], h[n+i]
		default:
			gate, value = h[i], fc3[i]
		}
		gate, value = min(gate, a.Limit), max(-a.Limit, min(value, a.Limit))
		h[i] = gate / (1 + math.Exp(-a.Alpha*gate)) * (value + a.Beta)
	}
	return h[:n]
}
