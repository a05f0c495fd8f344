package report

import (
	"cmp"
	"fmt"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/verify"
)

// mostWorst is the number of places that a check names.
const mostWorst = 3

// judge says how the verdict of a comparison came about.
func judge(v *verify.Report, opts verify.Options) *Judgement {
	d := &Judgement{Reasons: v.Reasons(), Failures: v.Failures, Hints: v.Hints}
	sqnr := opts.MinSQNR != nil
	d.Checks = []Check{
		{What: "Graph besides weights", Limit: "no differences", Done: true, OK: v.Failed[verify.CheckStructure] == 0, Worst: []At{}},
		weightCheck(v, "SQNR of weights", least(v.Limits.FineSQNR, v.Limits.SQNR), sqnr, verify.CheckWeights, func(w *compare.WeightMatch) (float64, bool) { return w.SQNR, true }),
		weightCheck(v, "SQNR of their worst blocks", least(v.Limits.FineBlockSQNR, v.Limits.BlockSQNR), sqnr && v.Limits.BlockSQNR == *opts.MinSQNR, verify.CheckBlocks, func(w *compare.WeightMatch) (float64, bool) {
			if w.Worst == nil {
				return 0, false
			}
			return w.Worst.SQNR, true
		}),
		outputCheck(v, Check{What: "SQNR of outputs", Unit: "dB", Limit: least(v.Limits.OutputSQNR, v.Limits.OutputSQNR), Given: sqnr || opts.MinOutputSQNR != nil}, verify.CheckOutputs, func(o *verify.Output) float64 { return o.SQNR }),
		outputCheck(v, Check{What: "Cosine of outputs", Limit: cosine(v.Limits.Cosine), Given: opts.MinCosine != nil}, verify.CheckCosine, func(o *verify.Output) float64 { return o.Cosine }),
		{What: "Runs in ONNX Runtime", Limit: "if IN does", Done: v.Execution.QuantizedRun != nil && !(v.Execution.QuantizedRun.Reason != "" && !v.Execution.QuantizedRun.Broken), OK: v.Failed[verify.CheckRuns] == 0, Worst: []At{}},
		{What: "Finite where the float model is", Limit: "all elements", Done: true, OK: v.Failed[verify.CheckFinite] == 0, Worst: []At{}},
	}
	if most := v.Limits.MaxError; most != nil {
		c := weightCheck(v, "Largest error", fmt.Sprintf("≤ %g", *most), true, verify.CheckLargest, func(w *compare.WeightMatch) (float64, bool) { return -w.MaxError, true })
		c.Unit = ""
		for i := range c.Worst {
			c.Worst[i].Value = -c.Worst[i].Value
		}
		d.Checks = append(d.Checks, c)
	}
	return d
}

// least formats the minimum SQNR of a weight, and of a weight whose codes have 2 bits.
func least(fine, coarse float64) string {
	switch {
	case fine == -errstat.Exact:
		return "none"
	case fine == coarse:
		return fmt.Sprintf("≥ %g dB", fine)
	}
	return fmt.Sprintf("≥ %g dB, with 2 bits ≥ %g dB", fine, coarse)
}

// cosine formats the minimum cosine of outputs.
func cosine(least float64) string {
	if least == -1 {
		return "none"
	}
	return fmt.Sprintf("≥ %g", least)
}

// weightCheck compares numbers of weights with a limit.
func weightCheck(v *verify.Report, what, limit string, given bool, kind verify.Check, number func(*compare.WeightMatch) (float64, bool)) Check {
	c := Check{What: what, Unit: "dB", Limit: limit, Given: given, Done: true}
	for i := range v.Weights {
		if n, ok := number(&v.Weights[i]); ok {
			c.Worst = append(c.Worst, At{named(v.Weights[i].Name, v.Weights[i].Node), n})
		}
	}
	return c.finish(v.Failed[kind])
}

// outputCheck is the same for outputs. One without a finite element to measure fails.
func outputCheck(v *verify.Report, c Check, kind verify.Check, number func(*verify.Output) float64) Check {
	c.Done = v.Execution.Compared
	failed := v.Failed[kind]
	add := func(outputs []verify.Output, of string) {
		for i := range outputs {
			if o := &outputs[i]; o.Elements > 0 {
				c.Worst = append(c.Worst, At{o.Name + of, number(o)})
			} else if o.Broken > 0 {
				failed++
			}
		}
	}
	add(v.Execution.Outputs, "")
	if own := v.Execution.QuantizedRun; own != nil {
		add(own.Outputs, " of OUT itself")
	}
	return c.finish(failed)
}

// finish keeps the lowest numbers.
func (c Check) finish(failed int) Check {
	c.OK = failed == 0
	if c.Worst == nil {
		c.Worst = []At{}
	}
	slices.SortStableFunc(c.Worst, func(a, b At) int { return cmp.Compare(a.Value, b.Value) })
	c.Worst = c.Worst[:min(mostWorst, len(c.Worst))]
	return c
}
