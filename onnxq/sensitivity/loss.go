package sensitivity

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
)

// Limits bound what static activations and their weights do to the outputs on held-out samples. A nil is no limit.
type Limits struct {
	KL   *float64 // largest mean KL divergence of an output with distributions, in nats
	SQNR *float64 // least SQNR of an output, in dB
	Drop *float64 // largest share of changed decisions, 0 to 1
}

// ErrLimit is wrapped by errors about limits that no choice of activations in float holds.
var ErrLimit = errors.New("the limit does not hold")

// given reports whether the user sets a limit.
func (l Limits) given() bool { return l.KL != nil || l.SQNR != nil || l.Drop != nil }

// hold reports whether the limits hold.
func (l Limits) hold(x onnxq.OutputLoss) bool { return l.Broken(x) == "" }

// Broken lists the limits that do not hold, with what was reached; "" if all hold.
func (l Limits) Broken(x onnxq.OutputLoss) string {
	var all []string
	check := func(limit, value *float64, sign float64, format string) {
		if limit != nil && value != nil && !(sign*(*value) <= sign*(*limit)) {
			all = append(all, fmt.Sprintf(format, *value, *limit))
		}
	}
	percent := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		p := 100 * *v
		return &p
	}
	check(l.KL, x.KL, 1, "a KL divergence of %.3g (--max-kl %.3g)")
	check(l.SQNR, x.SQNR, -1, "an SQNR of %.1f dB (--min-sqnr %g)")
	check(percent(l.Drop), percent(x.Drop), 1, "%.3g %% changed decisions (--max-drop %.3g%%)")
	return strings.Join(all, ", ")
}

// warnOfPoor returns a warning if the outputs say that the converted model is of little use. A least SQNR of the user replaces
// that, as it does for verify.
func (l Limits) warnOfPoor(x onnxq.OutputLoss, samples string) []string {
	if x.Poor == "" || l.SQNR != nil {
		return nil
	}
	return []string{fmt.Sprintf("OUT is poor: %s; measured on %s. A limit such as --min-sqnr %g, more bits, or a scale per channel (--block -1) help", x.Poor, samples, verify.LeastVarying)}
}

// Measurable returns an error if a limit is about outputs that the model does not have.
func (l Limits) Measurable(x onnxq.OutputLoss) error {
	switch {
	case l.KL != nil && x.KL == nil:
		return errors.New("--max-kl: no output has distributions; --min-sqnr limits the error of any output")
	case l.Drop != nil && x.Drop == nil:
		return errors.New("--max-drop: no output has decisions; --min-sqnr limits the error of any output")
	}
	return nil
}

// Losses returns a function that compares the outputs of runs, all outputs of the model in their order, with those of the
// float model m. Only packages of this module can use its types.
func Losses(m *onnxq.Model) (loss func(want, got [][]*execute.Tensor) onnxq.OutputLoss, outputs []string) {
	s := &Sensitivity{outputs: all(m.Graph().File.Proto.GetGraph()), all: true}
	return s.loss, s.names()
}

// loss compares the outputs of samples with those of the float model.
func (s *Sensitivity) loss(want, got [][]*execute.Tensor) (x onnxq.OutputLoss) {
	x.Damage = s.damage(want, got)
	if !s.all {
		return x
	}
	least := func(to **float64, v float64, sign float64) {
		if *to == nil || sign*v > sign**(*to) || math.IsNaN(v) {
			*to = &v
		}
	}
	for k := range s.outputs {
		least(&x.SQNR, sqnrOf(want, got, k), -1)
		if d := verify.Distributions(want, got, k); d != nil {
			least(&x.KL, d.KLDivergence.Mean, 1)
			least(&x.Drop, 1-d.Top1, 1)
		}
	}
	for k := range s.outputs {
		if x.KL != nil {
			break // decisions are those of distributions
		}
		if changed, ok := changedOf(want, got, k); ok {
			least(&x.Drop, changed, 1)
		}
	}
	return x
}

// exact is the SQNR of equal outputs.
const exact = 999

// sqnrOf is the SQNR of output k, in dB.
func sqnrOf(want, got [][]*execute.Tensor, k int) float64 {
	var noise, power float64
	for i := range want {
		a, b := want[i][k].Float64s(), got[i][k].Float64s()
		if len(a) != len(b) {
			return math.Inf(-1)
		}
		for j, v := range a {
			noise, power = noise+(b[j]-v)*(b[j]-v), power+v*v
		}
	}
	switch {
	case noise == 0:
		return exact
	case !(noise <= math.MaxFloat64):
		return math.Inf(-1)
	}
	return 10 * math.Log10(power/noise)
}

// changedOf is the share of rows of output k whose largest element is another one. ok is false if rows have one element.
func changedOf(want, got [][]*execute.Tensor, k int) (share float64, ok bool) {
	rows, changed := 0, 0
	for i := range want {
		n := classes(want[i][k])
		a, b := want[i][k].Float64s(), got[i][k].Float64s()
		if n < 2 || len(a) != len(b) {
			return 1, n >= 2
		}
		for j := 0; j+n <= len(a); j += n {
			if rows++; largest(a[j:j+n]) != largest(b[j:j+n]) {
				changed++
			}
		}
	}
	return float64(changed) / float64(max(rows, 1)), rows > 0
}

// largest returns the position of the largest element, -1 if that is NaN.
func largest(x []float64) int { return slices.Index(x, slices.Max(x)) }
