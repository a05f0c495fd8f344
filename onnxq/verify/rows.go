package verify

import (
	"math"
	"slices"
	"strings"

	"onnxquant/internal/run/execute"
)

// Rows compares the rows of an output, one run after the other, as Output.Distribution compares those of all runs. Only packages of this
// module can use its types.
type Rows struct {
	classes int
	begun   bool
	none    bool     // the output has no distributions
	kinds   [3]means // probabilities, logarithms, probabilities of yes
}

// means are what rows of a kind have shown.
type means struct {
	never      bool // the rows are of another kind
	rows, same int
	sum        float64 // of KL divergences
	p, q       []float64
}

// Add takes an output of the float model, and that of another model.
func (r *Rows) Add(want, got *execute.Tensor) {
	switch {
	case r.none:
		return
	case !r.begun:
		r.begun = true
		if r.none = len(want.Dims) == 0 || want.Len() == 0 || !want.IsFloat(); r.none {
			return
		}
		r.classes = int(want.Dims[len(want.Dims)-1])
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 1) }
	if len(want.Dims) == 0 || int(want.Dims[len(want.Dims)-1]) != r.classes || !got.IsFloat() || want.Len() != got.Len() {
		r.none = true
		return
	}
	x, y := want.Float64s(), got.Float64s()
	if r.none = !all(x, finite) || !all(y, finite); r.none {
		return
	}
	kind := kindOf(x, r.classes)
	named := r.classes > 1 && strings.Contains(strings.ToLower(want.Name), "logit")
	r.kinds[0].add(x, y, r.classes, probabilities, kind == probabilities)
	r.kinds[1].add(x, y, r.classes, logits, kind == logProbabilities || named)
	if yes := !named && all(x, func(v float64) bool { return v >= 0 && v <= 1 }); yes && !r.kinds[2].never {
		r.kinds[2].add(withComplements(x), withComplements(y), 2, probabilities, true)
	} else {
		r.kinds[2].never = true
	}
}

// add takes rows, if they are of the kind.
func (m *means) add(x, y []float64, classes int, kind string, fits bool) {
	if m.never = m.never || !fits; m.never {
		return
	}
	if m.p == nil {
		m.p, m.q = make([]float64, classes), make([]float64, classes)
	}
	for at := 0; at+classes <= len(x); at += classes {
		logOf(m.p, x[at:at+classes], kind)
		logOf(m.q, y[at:at+classes], kind)
		if slices.Index(m.p, slices.Max(m.p)) == slices.Index(m.q, slices.Max(m.q)) {
			m.same++
		}
		m.sum += divergence(m.p, m.q)
		m.rows++
	}
}

// Means returns the mean KL divergence, in nats, and the share of rows whose most likely class is the same. ok is false if the rows are no
// distributions.
func (r *Rows) Means() (kl, top1 float64, ok bool) {
	if m := r.means(); m != nil {
		return m.sum / float64(m.rows), float64(m.same) / float64(m.rows), true
	}
	return 0, 0, false
}

// Len is the number of rows; 0: the output has no distributions.
func (r *Rows) Len() int {
	if m := r.means(); m != nil {
		return m.rows
	}
	return 0
}

// means are those of the kind that the rows are of; nil: none.
func (r *Rows) means() *means {
	if r.none {
		return nil
	}
	for i := range r.kinds {
		if m := &r.kinds[i]; !m.never && m.rows > 0 {
			return m
		}
	}
	return nil
}
