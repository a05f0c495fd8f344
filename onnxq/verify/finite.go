package verify

import (
	"fmt"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/run/execute"
)

// NotFinite counts samples that show nothing: no output of the float model has a finite element. Where inputs and outputs
// have a first axis of one size, each row of it is a sample.
type NotFinite struct {
	Samples int `json:"samples"`
	Of      int `json:"of"`
	First   int `json:"first"` // the number of the first one, from 0
}

// mostNotFinite is the share of samples that may show nothing: with more, OUT was not compared.
const mostNotFinite = 0.1

// String implements fmt.Stringer.
func (n *NotFinite) String() string {
	which := fmt.Sprintf(": sample %d", n.First)
	if n.Samples > 1 {
		which = fmt.Sprintf(", such as sample %d", n.First)
	}
	return fmt.Sprintf("%d of %s %s no finite output%s", n.Samples, english.Plural(n.Of, "sample", ""), english.PluralWord(n.Samples, "has", "have"), which)
}

// tooMany reports whether more samples show nothing than may.
func (n *NotFinite) tooMany() bool {
	return n != nil && float64(n.Samples) > mostNotFinite*float64(n.Of)
}

// notFinite counts the samples that show nothing. It is nil if there are none.
func notFinite(inputs, outputs [][]*execute.Tensor) *NotFinite {
	n := NotFinite{}
	for run, list := range outputs {
		for _, finite := range finiteRows(inputs[run], list) {
			if !finite {
				if n.Samples == 0 {
					n.First = n.Of
				}
				n.Samples++
			}
			n.Of++
		}
	}
	if n.Samples == 0 {
		return nil
	}
	return &n
}

// finiteRows says which samples of a run have a finite element in an output. All have, if no output is of floats.
func finiteRows(inputs, outputs []*execute.Tensor) []bool {
	var floats []*execute.Tensor
	for _, t := range outputs {
		if t.IsFloat() && t.List == nil && t.Len() > 0 {
			floats = append(floats, t)
		}
	}
	if len(floats) == 0 {
		return []bool{true}
	}
	rows := make([]bool, commonRows(inputs, floats))
	for _, t := range floats {
		x := t.Float64s()
		for i, v := range x {
			if v-v == 0 {
				rows[i*len(rows)/len(x)] = true
			}
		}
	}
	return rows
}

// commonRows is the size that the first axes of all tensors have, or 1.
func commonRows(lists ...[]*execute.Tensor) int {
	rows := int64(0)
	for _, list := range lists {
		for _, t := range list {
			if len(t.Dims) == 0 || t.Dims[0] < 1 || rows > 0 && t.Dims[0] != rows {
				return 1
			}
			rows = t.Dims[0]
		}
	}
	return int(max(rows, 1))
}

// judgeFinite fails or warns if samples show nothing. Inputs that verify made may be none that the model takes.
func (v *verifier) judgeFinite() {
	n := v.report.Execution.NotFinite
	switch {
	case n == nil || !v.report.Execution.Compared:
	case n.tooMany() && len(v.opts.Inputs) > 0:
		v.fail(CheckCompared, "%v: the outputs of these were not compared", n)
	default:
		v.warn("%v: the outputs of %s not compared", n, english.PluralWord(n.Samples, "this one were", "these were"))
	}
}
