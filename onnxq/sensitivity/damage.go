package sensitivity

import (
	"math"
	"slices"

	"onnxquant/internal/run/execute"
)

// damage compares the outputs of samples with those of the float model. It adds up over the outputs;
// most models have one.
func (s *Sensitivity) damage(want, got [][]*execute.Tensor) float64 {
	total := 0.0
	for k, o := range s.outputs {
		if o.kind == unweighed {
			continue
		}
		var sum, weight float64
		for i := range got {
			a, b := want[i][k].Float64s(), got[i][k].Float64s()
			if len(a) != len(b) {
				return math.Inf(1)
			}
			if o.kind == numbers {
				for j, x := range a {
					sum, weight = sum+(b[j]-x)*(b[j]-x), weight+x*x
				}
				continue
			}
			n := classes(want[i][k])
			for j := 0; j+n <= len(a); j += n {
				sum, weight = sum+divergence(a[j:j+n], b[j:j+n], o.kind), weight+1
			}
		}
		if weight > 0 {
			sum /= weight
		}
		total += max(sum, 0)
	}
	if math.IsNaN(total) {
		return math.Inf(1) // the worst
	}
	return total
}

// classes returns the number of elements of a distribution.
func classes(t *execute.Tensor) int {
	if len(t.Dims) == 0 {
		return 1
	}
	return int(max(t.Dims[len(t.Dims)-1], 1))
}

// divergence returns the Kullback-Leibler divergence of b from a, Σ a·log(a/b).
func divergence(a, b []float64, k kind) float64 {
	p, q := logarithms(a, k), logarithms(b, k)
	sum := 0.0
	for i := range p {
		if p[i] > math.Inf(-1) {
			sum += math.Exp(p[i]) * (p[i] - q[i])
		}
	}
	return sum
}

// logarithms returns the logarithms of the probabilities.
func logarithms(x []float64, k kind) []float64 {
	y := make([]float64, len(x))
	if k == probabilities {
		for i, v := range x {
			y[i] = math.Log(max(v, 1e-12))
		}
		return y
	}
	top, sum := slices.Max(x), 0.0
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	norm := top + math.Log(sum)
	for i, v := range x {
		y[i] = v - norm
	}
	return y
}
