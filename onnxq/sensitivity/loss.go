package sensitivity

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/internal/run/distribution"
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

// flags lists the limits as flags.
func (l Limits) flags() string {
	var all []string
	if l.KL != nil {
		all = append(all, fmt.Sprintf("--max-kl %.3g", *l.KL))
	}
	if l.SQNR != nil {
		all = append(all, fmt.Sprintf("--min-sqnr %g", *l.SQNR))
	}
	if l.Drop != nil {
		all = append(all, fmt.Sprintf("--max-drop %.3g%%", 100**l.Drop))
	}
	return strings.Join(all, ", ")
}

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
	return func(want, got [][]*execute.Tensor) onnxq.OutputLoss {
		l := s.losses()
		for i := range want {
			l.add(want[i], got[i])
		}
		return l.loss()
	}, s.names()
}

// losses compares the outputs of samples with those of the float model, one sample after the other.
type losses struct {
	*damages
	all  bool         // not the damage alone
	each []difference // of each output
}

// difference is that of an output over samples.
type difference struct {
	noise, power  float64
	unlike        bool // some had another size
	rows, changed int  // rows with another largest element
	single        bool // some rows have one element
	distributions distribution.Comparison
}

func (s *Sensitivity) losses() *losses {
	return &losses{s.damages(), s.all, make([]difference, len(s.outputs))}
}

// add takes the outputs of a sample.
func (l *losses) add(want, got []*execute.Tensor) error {
	if err := l.damages.add(want, got); err != nil || !l.all {
		return err
	}
	for k := range l.each {
		l.each[k].add(want[k], got[k])
	}
	return nil
}

func (d *difference) add(want, got *execute.Tensor) {
	d.distributions.Add(want, got)
	n, a, b := classes(want), want.Float64s(), got.Float64s()
	if len(a) != len(b) {
		d.unlike = true
		return
	}
	for j, v := range a {
		d.noise, d.power = d.noise+(b[j]-v)*(b[j]-v), d.power+v*v
	}
	if d.single = d.single || n < 2; d.single {
		return
	}
	for j := 0; j+n <= len(a); j += n {
		if d.rows++; largest(a[j:j+n]) != largest(b[j:j+n]) {
			d.changed++
		}
	}
}

// loss is that of all samples. Its numbers are finite, as JSON needs them.
func (l *losses) loss() (x onnxq.OutputLoss) {
	defer func() { writable(&x) }()
	x.Damage = l.total()
	if !l.all {
		return x
	}
	least := func(to **float64, v float64, sign float64) {
		if *to == nil || sign*v > sign**(*to) || math.IsNaN(v) {
			*to = &v
		}
	}
	fewest := func(rows int) {
		if x.Rows == 0 || rows < x.Rows {
			x.Rows = rows
		}
	}
	for k := range l.each {
		least(&x.SQNR, l.each[k].sqnr(), -1)
		if r, ok := l.each[k].distributions.Result(); ok {
			least(&x.KL, r.KL, 1)
			least(&x.Drop, 1-r.Top1, 1)
			fewest(r.Rows)
		}
	}
	for k := range l.each {
		if x.KL != nil {
			break // decisions are those of distributions
		}
		if share, ok := l.each[k].changes(); ok {
			least(&x.Drop, share, 1)
			fewest(l.each[k].rows)
		}
	}
	return x
}

// writable replaces infinite numbers, and NaN, by the worst ones that JSON has.
func writable(x *onnxq.OutputLoss) {
	broken := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	x.Damage = min(x.Damage, math.MaxFloat64)
	if x.KL != nil && broken(*x.KL) {
		x.KL = new(math.MaxFloat64)
	}
	if x.SQNR != nil && broken(*x.SQNR) {
		x.SQNR = new(float64(-exact))
	}
	if x.Drop != nil && broken(*x.Drop) {
		x.Drop = new(1.0)
	}
}

// exact is the SQNR of equal outputs.
const exact = 999

// sqnr is the SQNR, in dB.
func (d *difference) sqnr() float64 {
	switch {
	case d.unlike || !(d.noise <= math.MaxFloat64):
		return math.Inf(-1)
	case d.noise == 0:
		return exact
	}
	return 10 * math.Log10(d.power/d.noise)
}

// changes is the share of rows whose largest element is another one. ok is false if rows have one element.
func (d *difference) changes() (share float64, ok bool) {
	switch {
	case d.single:
		return 1, false
	case d.unlike:
		return 1, true
	}
	return float64(d.changed) / float64(max(d.rows, 1)), d.rows > 0
}

// largest returns the position of the largest element, -1 if that is NaN.
func largest(x []float64) int { return slices.Index(x, slices.Max(x)) }
