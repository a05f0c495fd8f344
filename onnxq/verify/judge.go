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
	"onnxquant/spec"
)

// judge lists the failures.
func (v *verifier) judge() {
	r := v.report
	v.judgeWritten()
	problems := r.Structure.Problems
	if v.optimized && len(problems) > 0 {
		text := fmt.Sprintf("OUT was optimized by ONNX Runtime (%s, such as: %s); verify compares graphs by structure: compare the model from before it was optimized", english.Plural(len(problems), "difference", ""), problems[0])
		problems = []string{text}
	}
	if r.Structure.Unread {
		problems = nil
		text := "OUT makes codes of its float weights itself, for operators such as QLinearConv; this form cannot be compared by structure"
		if r.Execution.Compared {
			v.warn("%s: the outputs decide", text)
		} else {
			problems = []string{text + ", and the outputs were not compared"}
		}
	}
	for _, p := range problems {
		v.fail(CheckStructure, "%s", p)
	}
	for _, w := range r.Weights {
		v.judgeWeight(&w)
	}
	v.judgeFolded()
	v.judgeOutputs()
	if x := r.Execution; x.Required && !x.Compared {
		v.fail(CheckCompared, "the outputs were not compared: %s", strings.Join(x.Reasons, "; "))
	}
	v.judgeFinite()
	v.judgeQuality()
	v.warnOfRanges()
	r.Limited, r.Given = v.opts.LimitsGiven(), len(v.opts.Inputs) > 0
	r.Verdict = v.verdict()
	r.Passed = r.Verdict != Failed
	v.hint()
}

func (v *verifier) fail(c Check, format string, args ...any) {
	v.report.Failed[c]++
	v.report.Failures = append(v.report.Failures, fmt.Sprintf(format, args...))
}

func (v *verifier) judgeWeight(w *compare.WeightMatch) {
	what := fmt.Sprintf("weight %q", w.Name)
	v.broken(what, w.Broken)
	float := w.Form == string(spec.Float)
	if float && w.SQNR < errstat.Exact && !v.floats {
		v.fail(CheckWeights, "%s: it is not quantized, but its values differ (SQNR %.1f dB)", what, w.SQNR)
		return
	}
	if w.Nearest || w.Bias && v.corrected {
		v.largest(what, w.MaxError)
		return
	}
	least := v.report.Limits.SQNR
	switch {
	case eightBits(w):
		least = v.report.Limits.ByteSQNR
	case !twoBits(w) && !float: // the codes of a float may have had 2 bits
		least = v.report.Limits.FineSQNR
	}
	v.sqnr(CheckWeights, what, w.SQNR, least)
	v.judgeGain(what, w)
	v.judgeElements(what, w)
	v.judgeBlock(what, w)
	v.judgeBlockScale(what, w)
	v.judgeScales(what, w)
	v.largest(what, w.MaxError)
}

// judgeGain fails a weight whose scales are all too large or too small. It uses the whole weight, because
// scales from calibration data may be off in one block and compensate that in others.
func (v *verifier) judgeGain(what string, w *compare.WeightMatch) {
	l := &v.report.Limits
	if l.MostGain > 0 && !(w.Gain >= l.LeastGain && w.Gain <= l.MostGain) {
		v.fail(CheckWeights, "%s: it is %.2g times as large as in the float model; from %g to %g is usual", what, w.Gain, l.LeastGain, l.MostGain)
	}
}

// judgeScales fails codes with the scales of another weight: with fitting scales, the error would be much
// smaller. Weights of 2 bits are exempt, because their scales look wrong if all elements have one
// sign. The limit is higher for codes from calibration data, which fit less where the data rarely
// activate channels.
func (v *verifier) judgeScales(what string, w *compare.WeightMatch) {
	const (
		matters, little = 20.0, 40.0 // dB
		much            = 20.0       // dB; codes that are all right, with one wrong scale or zero point
	)
	wrong := w.SQNR < matters && w.Misfit > v.report.Limits.Misfit || w.SQNR < little && w.Misfit > max(much, v.report.Limits.Misfit)
	if v.opts.MinSQNR == nil && !twoBits(w) && wrong {
		v.fail(CheckWeights, "%s: its scales do not fit its codes: with others, its SQNR would be %.1f dB in place of %.1f", what, w.SQNR+w.Misfit, w.SQNR)
	}
}

// judgeElements fails codes that no algorithm makes of the weight: of another element, or of scales that are so small
// that the codes clip.
func (v *verifier) judgeElements(what string, w *compare.WeightMatch) {
	l := &v.report.Limits
	if v.opts.MinSQNR != nil || l.Stray == 0 {
		return
	}
	if w.Stray > l.Stray && !twoBits(w) {
		v.fail(CheckBlocks, "%s: the code of an element is not its own: its error is %.3g times that of others in its block", what, w.Stray)
	}
	harmless := clips
	if eightBits(w) {
		harmless = byteClips
	}
	if w.Clipped > l.Clipped && w.SQNR < harmless && !twoBits(w) && len(w.Shape) > 1 { // biases have few elements
		v.fail(CheckWeights, "%s: its scales are too small: %.3g %% of its error comes from clipping", what, 100*w.Clipped)
	}
}

// The SQNR in dB from which clipping does no harm.
const (
	clips     = 20.0
	byteClips = 30.0 // if codes have 8 bits
)

// twoBits reports whether the codes of a weight have 2 bits.
func twoBits(w *compare.WeightMatch) bool { return strings.HasSuffix(w.CodeType, "INT2") }

// eightBits reports whether the codes of a weight have 8 bits and use all of them: some formats store
// fewer bits in bytes, in blocks.
func eightBits(w *compare.WeightMatch) bool {
	return (w.CodeType == dtype.Int8.String() || w.CodeType == dtype.Uint8.String()) &&
		(strings.HasPrefix(w.Form, "QuantizeLinear") || w.Form == "DequantizeLinear" && w.Block < 0)
}

// judgeBlock fails a block that has nothing in common with the weight, such as a block with a zero or
// negated scale. Blocks of very small elements are exempt: they may be all zero, or distorted by the
// scale of their superblock. Codes from calibration data may be far from the weights, but rarely
// opposite.
func (v *verifier) judgeBlock(what string, w *compare.WeightMatch) {
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

// coarse is the largest error of an element, relative to the largest element of its superblock, with
// codes of 2 bits and scales and mins of 4 bits. Half a step of each is 1/15; their own rounding adds
// to that.
const coarse = 0.15

func square(x float64) float64 { return x * x }

// judgeBlockScale fails a block with the codes of the weight but a wrong scale.
func (v *verifier) judgeBlockScale(what string, w *compare.WeightMatch) {
	l, b := &v.report.Limits, w.WorstGain
	if b != nil && l.MostBlockGain > 0 && !twoBits(w) && !(b.Gain >= l.LeastBlockGain && b.Gain <= l.MostBlockGain) {
		v.fail(CheckBlocks, "%s: the block of %d at %v is %.2g times as large as in the float model; from %g to %g is usual",
			what, b.Length, b.At, b.Gain, l.LeastBlockGain, l.MostBlockGain)
	}
}

// judgeOutputs compares the outputs with the limits: of OUT with its weights as floats, and of OUT as
// it is.
func (v *verifier) judgeOutputs() {
	x := &v.report.Execution
	for i := range x.Outputs {
		v.judgeOutput(fmt.Sprintf("output %q", x.Outputs[i].Name), &x.Outputs[i])
	}
	if own := x.QuantizedRun; v.stops != "" && !x.Compared && (own == nil || !own.Broken) {
		v.fail(CheckRuns, "%s", v.stops)
	}
	if own := x.QuantizedRun; own != nil {
		for i := range own.Outputs {
			v.judgeOutput(fmt.Sprintf("output %q of OUT itself", own.Outputs[i].Name), &own.Outputs[i])
		}
		switch {
		case own.Broken:
			v.fail(CheckRuns, "%s runs IN and does not run OUT: %s", own.Engine, own.Reason)
		case own.Reason != "":
			v.warn("%s does not run OUT itself, only with its weights as floats: %s", cmp.Or(own.Engine, "ONNX Runtime"), own.Reason)
		}
	}
}

func (v *verifier) warn(format string, args ...any) {
	v.report.Warnings = append(v.report.Warnings, fmt.Sprintf(format, args...))
}

func (v *verifier) judgeOutput(what string, o *Output) {
	v.broken(what, int64(o.Broken))
	if o.Elements == 0 || v.negligible(o) {
		return
	}
	// By default, integers are not judged: they may be classes or positions.
	if cmp.Or(v.opts.MinOutputSQNR, v.opts.MinSQNR) != nil || isFloat(o.DType) {
		v.sqnr(CheckOutputs, what, o.SQNR, v.report.Limits.OutputSQNR)
	}
	if least := v.report.Limits.Cosine; (v.opts.MinCosine != nil || isFloat(o.DType)) && o.Cosine < least {
		v.fail(CheckCosine, "%s: cosine %.3f is below %g", what, o.Cosine, least)
	}
	v.largest(what, o.MaxError)
}

// negligible reports whether an output is about zero in both models, next to the inputs. What is left there is
// rounding.
func (v *verifier) negligible(o *Output) bool {
	return o.MaxError > 0 && isFloat(o.DType) && o.MaxError*max(1, 1/o.Relative) <= v.least
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
