package verify

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/spec"
)

// judge lists the failures.
func (v *verifier) judge() {
	r := v.report
	problems := r.Structure.Problems
	if v.optimized && len(problems) > 0 {
		text := fmt.Sprintf("OUT was optimized by ONNX Runtime (%s, such as: %s); verify compares graphs by structure: compare the model from before it was optimized", english.Plural(len(problems), "difference", ""), problems[0])
		problems = []string{text}
	}
	for _, p := range problems {
		v.fail(CheckStructure, "%s", p)
	}
	for _, w := range r.Weights {
		v.judgeWeight(&w)
	}
	v.judgeOutputs()
	if x := r.Execution; x.Required && !x.Compared {
		v.fail(CheckCompared, "the outputs were not compared: %s", strings.Join(x.Reasons, "; "))
	}
	r.Passed = len(r.Failures) == 0
}

func (v *verifier) fail(c Check, format string, args ...any) {
	v.report.Failed[c]++
	v.report.Failures = append(v.report.Failures, fmt.Sprintf(format, args...))
}

func (v *verifier) judgeWeight(w *compare.WeightMatch) {
	what := fmt.Sprintf("weight %q", w.Name)
	v.broken(what, w.Broken)
	if w.Form == string(spec.Float) && w.SQNR < errstat.Exact {
		v.fail(CheckWeights, "%s: it is not quantized, but has other values (SQNR %.1f dB)", what, w.SQNR)
		return
	}
	least := v.report.Limits.SQNR
	if !twoBits(w) {
		least = v.report.Limits.FineSQNR
	}
	v.sqnr(CheckWeights, what, w.SQNR, least)
	v.gain(what, w)
	v.block(what, w)
	v.scaled(what, w)
	v.misfit(what, w)
	v.largest(what, w.MaxError)
}

// gain fails a weight whose scales are all too large or too small. Those that data found may be so for a
// block, but make up for that in others.
func (v *verifier) gain(what string, w *compare.WeightMatch) {
	l := &v.report.Limits
	if l.MostGain > 0 && !(w.Gain >= l.LeastGain && w.Gain <= l.MostGain) {
		v.fail(CheckWeights, "%s: it is %.2g times as large as in the float model; from %g to %g is usual", what, w.Gain, l.LeastGain, l.MostGain)
	}
}

// misfit fails codes whose scales are those of another weight: with scales that fit, the error
// would be much less. It is so for a weight of 2 bits too, if its elements have one sign. Scales
// that data found fit less where these hardly reach.
func (v *verifier) misfit(what string, w *compare.WeightMatch) {
	const matters = 20.0 // dB
	if v.opts.MinSQNR == nil && !twoBits(w) && w.SQNR < matters && w.Misfit > v.report.Limits.Misfit {
		v.fail(CheckWeights, "%s: its scales do not fit its codes: with others, its SQNR would be %.1f dB in place of %.1f", what, w.SQNR+w.Misfit, w.SQNR)
	}
}

// twoBits reports whether the codes of a weight have 2 bits.
func twoBits(w *compare.WeightMatch) bool { return strings.HasSuffix(w.CodeType, "INT2") }

// block fails a block that has nothing of the weight, such as one whose scale is zero or
// negated. Blocks of very small elements may be all zero, or distorted by the scale of their
// superblock. Codes that data found may be far from the weights, but seldom the other way round.
func (v *verifier) block(what string, w *compare.WeightMatch) {
	limits := &v.report.Limits
	least, cosine := limits.FineBlockSQNR, limits.FineBlockCosine
	much := w.MSE * math.Pow(10, w.SQNR/10) // the mean square of the weight
	switch {
	case twoBits(w) && w.Superblock > 0:
		least, cosine = limits.CoarseBlockSQNR, limits.CoarseBlockCosine
		much = max(much, square(coarse*w.Largest))
	case twoBits(w):
		least, cosine = limits.BlockSQNR, limits.BlockCosine
	}
	b := w.Worst
	if b == nil || b.MSE < much {
		b = w.WorstLarge
	}
	switch a := w.LeastAlike; {
	case b != nil && b.SQNR < least:
		v.fail(CheckBlocks, "%s: SQNR %.1f dB of the block of %d at %v is below %g dB", what, b.SQNR, b.Length, b.At, least)
	case a != nil && a.Cosine < cosine:
		v.fail(CheckBlocks, "%s: cosine %.2f of the block of %d at %v is below %g: it is negated, zero or another block", what, a.Cosine, a.Length, a.At, cosine)
	}
}

// coarse is how far an element may be off, of the largest one of its superblock, if scales and mins have 4 bits
// and codes 2: half a step of each is 1/15 of the largest element, and a bit more where they are rounded too.
const coarse = 0.15

func square(x float64) float64 { return x * x }

// scaled fails a block whose codes are those of the weight, while its scale is another.
func (v *verifier) scaled(what string, w *compare.WeightMatch) {
	l, b := &v.report.Limits, w.WorstGain
	if b != nil && l.MostBlockGain > 0 && !twoBits(w) && !(b.Gain >= l.LeastBlockGain && b.Gain <= l.MostBlockGain) {
		v.fail(CheckBlocks, "%s: the block of %d at %v is %.2g times as large as in the float model; from %g to %g is usual",
			what, b.Length, b.At, b.Gain, l.LeastBlockGain, l.MostBlockGain)
	}
}

// judgeOutputs holds what was run to the limits: OUT with its weights as floats, and as it is.
func (v *verifier) judgeOutputs() {
	x := &v.report.Execution
	for i := range x.Outputs {
		v.judgeOutput(fmt.Sprintf("output %q", x.Outputs[i].Name), &x.Outputs[i])
	}
	if own := x.Itself; own != nil {
		for i := range own.Outputs {
			v.judgeOutput(fmt.Sprintf("output %q of OUT itself", own.Outputs[i].Name), &own.Outputs[i])
		}
		if own.Reason != "" {
			v.warn("%s does not run OUT itself, only with its weights as floats: %s", x.Engine, own.Reason)
		}
	}
	for _, o := range x.Final() {
		if d := o.Distribution; d != nil && d.differs() {
			v.warn("output %q: only %.3g %% of %s have the same class as in the float model, and the KL divergence is %.3g on average: the model may be of little use",
				o.Name, 100*d.Top1, english.Plural(d.Rows, "row", ""), d.KL.Mean)
		}
	}
}

func (v *verifier) warn(format string, args ...any) {
	v.report.Warnings = append(v.report.Warnings, fmt.Sprintf(format, args...))
}

func (v *verifier) judgeOutput(what string, o *Output) {
	v.broken(what, int64(o.Broken))
	if o.Elements == 0 {
		return
	}
	// By default, integers may be other classes or positions.
	if cmp.Or(v.opts.MinOutputSQNR, v.opts.MinSQNR) != nil || isFloat(o.DType) {
		v.sqnr(CheckOutputs, what, o.SQNR, v.report.Limits.OutputSQNR)
	}
	if least := v.report.Limits.Cosine; (v.opts.MinCosine != nil || isFloat(o.DType)) && o.Cosine < least {
		v.fail(CheckCosine, "%s: cosine %.3f is below %g", what, o.Cosine, least)
	}
	v.largest(what, o.MaxError)
}

func isFloat(name string) bool {
	for _, t := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		if t.String() == name {
			return true
		}
	}
	return false
}

func (v *verifier) broken(what string, n int64) {
	if n > 0 {
		v.fail(CheckFinite, "%s: %d %s NaN or infinite in one model and different in the other", what, n, english.PluralWord(int(n), "element is", "elements are"))
	}
}

func (v *verifier) sqnr(c Check, what string, sqnr, least float64) {
	if sqnr < least {
		v.fail(c, "%s: SQNR %.1f dB is below %g dB", what, sqnr, least)
	}
}

func (v *verifier) largest(what string, maxError float64) {
	if most := v.report.Limits.MaxError; most != nil && maxError > *most {
		v.fail(CheckLargest, "%s: largest error %.3g is above %g", what, maxError, *most)
	}
}
