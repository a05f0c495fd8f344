package gradient

import (
	"math"
	"strings"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// kind says how an output is compared.
type kind int

const (
	ignored kind = iota
	squared      // squared error, over the squares of the model itself
	logits       // KL divergence of rows along the last axis
	logProbabilities
	probabilities
)

// Loss names what Step compares.
func (m *Model) Loss() string {
	for _, k := range m.kinds {
		if k > squared {
			return "KL divergence"
		}
	}
	return "squared error"
}

// compare returns the loss of a sample, and the gradients of the outputs if they are wanted. student has the
// outputs with other weights.
func (p *pass) compare(one *sample, student map[string]*execute.Tensor, gradients bool) (loss float64, all map[string][]float32, err error) {
	if p.kinds == nil {
		if err := p.findKinds(one); err != nil {
			return 0, nil, err
		}
	}
	all = map[string][]float32{}
	for i, name := range p.outputs {
		if p.kinds[i] == ignored {
			continue
		}
		a, b := one.float[name], student[name]
		if a.Len() != b.Len() {
			return 0, nil, op.Unsupported("output %q, whose shape depends on the weights", name)
		}
		var g []float32
		if gradients {
			g = make([]float32, b.Len())
		}
		width := 1
		if n := len(a.Dims); n > 0 {
			width = int(a.Dims[n-1])
		}
		l := difference(p.kinds[i], op.Floats(a), op.Floats(b), width, g)
		if l-l != 0 {
			return 0, nil, op.Unsupported("output %q, which has NaN or infinity", name)
		}
		loss += l
		if gradients {
			all[name] = g
		}
	}
	return loss, all, nil
}

// findKinds finds out how the outputs are compared. If any has classes, others are ignored.
func (p *pass) findKinds(one *sample) error {
	kinds, most := make([]kind, len(p.outputs)), ignored
	for i, name := range p.outputs {
		if t := one.float[name]; t != nil && t.IsFloat() && t.Len() > 0 && p.values.active.has(name) {
			kinds[i] = kindOf(t, name)
			most = max(most, kinds[i])
		}
	}
	if most == ignored {
		return op.Unsupported("the gradient: no floating-point output depends on the weights")
	}
	for i, k := range kinds {
		if most > squared && k == squared {
			kinds[i] = ignored
		}
	}
	p.kinds = kinds
	return nil
}

// kindOf recognizes rows of classes: probabilities that add up to 1, their logarithms, and what is called logits.
func kindOf(t *execute.Tensor, name string) kind {
	n := len(t.Dims)
	if n == 0 || t.Dims[n-1] < 2 {
		return squared
	}
	width, x := int(t.Dims[n-1]), op.Floats(t)
	toOne := func(of func(float64) float64) bool {
		for at := 0; at < len(x); at += width {
			sum := 0.0
			for _, v := range x[at : at+width] {
				if of(float64(v)) < 0 {
					return false
				}
				sum += of(float64(v))
			}
			if math.Abs(sum-1) > 1e-2 {
				return false
			}
		}
		return true
	}
	switch {
	case toOne(func(v float64) float64 { return v }):
		return probabilities
	case toOne(math.Exp):
		return logProbabilities
	case strings.Contains(strings.ToLower(name), "logit"):
		return logits
	}
	return squared
}

// difference compares the outputs b with a. It sets g, if not nil, to the gradient by b.
func difference(k kind, a, b []float32, width int, g []float32) (loss float64) {
	if len(a) == 0 {
		return 0
	}
	if k == squared {
		sum, signal := 0.0, 0.0
		for i, v := range a {
			d := float64(b[i]) - float64(v)
			sum, signal = sum+d*d, signal+float64(v)*float64(v)
		}
		signal = max(signal, 1e-30)
		for i := range g {
			g[i] = float32(2 * (float64(b[i]) - float64(a[i])) / signal)
		}
		return sum / signal
	}
	rows := len(a) / width
	p, q := make([]float64, width), make([]float64, width)
	for at := 0; at < len(a); at += width {
		logarithms(p, a[at:], k)
		logarithms(q, b[at:], k)
		for i, lp := range p {
			if share := math.Exp(lp); share > 0 {
				loss += share * (lp - q[i]) / float64(rows)
			}
		}
		if g == nil {
			continue
		}
		for i, lp := range p {
			share := math.Exp(lp)
			switch k {
			case logits:
				share = share - math.Exp(q[i])
			case probabilities:
				share /= max(float64(b[at+i]), least)
			}
			g[at+i] = float32(-share / float64(rows))
		}
	}
	return loss
}

// least is the smallest probability that counts.
const least = 1e-12

// logarithms sets p to the logarithms of the probabilities of a row.
func logarithms(p []float64, row []float32, k kind) {
	switch k {
	case probabilities:
		for i := range p {
			p[i] = math.Log(max(float64(row[i]), least))
		}
		return
	case logProbabilities:
		for i := range p {
			p[i] = float64(row[i])
		}
		return
	}
	most := math.Inf(-1)
	for i := range p {
		most = max(most, float64(row[i]))
	}
	sum := 0.0
	for i := range p {
		sum += math.Exp(float64(row[i]) - most)
	}
	sum = most + math.Log(sum)
	for i := range p {
		p[i] = float64(row[i]) - sum
	}
}
