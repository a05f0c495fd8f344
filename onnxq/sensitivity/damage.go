package sensitivity

import (
	"math"
	"slices"

	"onnxquant/internal/run/execute"
)

// damages compares the outputs of samples with those of the float model, one sample after the other. It adds up over the
// outputs; most models have one.
type damages struct {
	outputs     []output
	sum, weight []float64 // of each output
	unlike      bool      // some outputs had another size
}

func (s *Sensitivity) damages() *damages {
	n := len(s.outputs)
	return &damages{outputs: s.outputs, sum: make([]float64, n), weight: make([]float64, n)}
}

// add takes the outputs of a sample.
func (d *damages) add(want, got []*execute.Tensor) error {
	for k, o := range d.outputs {
		if o.kind == unweighed {
			continue
		}
		a, b := want[k].Float64s(), got[k].Float64s()
		if len(a) != len(b) {
			d.unlike = true
			continue
		}
		sum, weight := d.sum[k], d.weight[k]
		if o.kind == numbers {
			for j, x := range a {
				sum, weight = sum+(b[j]-x)*(b[j]-x), weight+x*x
			}
		} else {
			n := classes(want[k])
			for j := 0; j+n <= len(a); j += n {
				sum, weight = sum+divergence(a[j:j+n], b[j:j+n], o.kind), weight+1
			}
		}
		d.sum[k], d.weight[k] = sum, weight
	}
	return nil
}

// total is the damage of all samples.
func (d *damages) total() float64 {
	total := 0.0
	for k, sum := range d.sum {
		if d.weight[k] > 0 {
			sum /= d.weight[k]
		}
		total += max(sum, 0)
	}
	if d.unlike || math.IsNaN(total) {
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
