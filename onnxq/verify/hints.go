package verify

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/msg"
	"onnxquant/internal/target"
	"onnxquant/onnxq/compare"
	"onnxquant/spec"
)

// hint lists what to do about the verdict.
func (v *verifier) hint() {
	r := v.report
	if text := v.weightsHint(); text != "" { // what others say of the weights is not about the conversion
		r.Hints = append(r.Hints, text)
		return
	}
	for _, text := range []string{v.swapHint(), v.overflowHint(), v.activationHint(), v.poorHint(), v.runtimeHint()} {
		if text != "" {
			r.Hints = append(r.Hints, text)
		}
	}
}

// runtimeHint suggests how to run OUT as users run it: kernels that compute with codes round more.
func (v *verifier) runtimeHint() string {
	r := v.report
	coded := slices.ContainsFunc(r.Weights, func(m compare.WeightMatch) bool { return m.CodeType != "" })
	if r.Verdict == Failed || !coded || !r.Execution.Compared || r.Execution.QuantizedRun != nil {
		return ""
	}
	why := "that needs ONNX Runtime, which --engine auto looks for"
	if v.lacked != nil {
		why = v.lacked.Error()
	}
	return "OUT itself was not run, with the kernels for its codes: " + why
}

// weightsHint says that the weights of OUT never were those of IN.
func (v *verifier) weightsHint() string {
	from := func(s spec.Step) bool { return strings.Contains(s.Options, "--weights-from") }
	if v.report.Failed[CheckWeights] == 0 || !slices.ContainsFunc(v.record, from) {
		return ""
	}
	return "OUT has the weights of other files (--weights-from): compare it with the float model that has them: onnxquant --exclude '*' --weights-from FILE IN FLOAT"
}

// swapHint says that the models may be in the wrong order.
func (v *verifier) swapHint() string {
	if v.report.Verdict != Failed || !v.report.Swapped {
		return ""
	}
	return "the first model has quantized weights, the second has none: the float model is the first argument, so swap them"
}

// overflowHint suggests a remedy for values beyond float16.
func (v *verifier) overflowHint() string {
	broken := slices.ContainsFunc(v.report.Execution.Outputs, func(o Output) bool { return o.Broken > 0 })
	if !broken || v.report.Structure.FloatType != "float16" {
		return ""
	}
	return "values inside the model exceed 65504, the largest of float16: convert with --ranges of onnxquant calibrate or with --bfloat16, or keep the nodes that make them in float32 with --float-ops or --exclude"
}

// bad reports whether the outputs failed, or are poor.
func (v *verifier) bad() bool {
	r := v.report
	return len(r.Poor) > 0 || r.Failed[CheckOutputs]+r.Failed[CheckCosine] > 0
}

// activationHint suggests remedies if 8-bit activations degrade the outputs: inputs of the same kind
// as those of the ranges, finer scales of weights, or fewer activations.
func (v *verifier) activationHint() string {
	switch {
	case len(v.report.Structure.Activations) == 0 || !v.bad():
		return ""
	case len(v.opts.Inputs) == 0:
		return "the inputs are made up, and activations have the ranges of other data: give such data by --inputs"
	}
	without := ""
	if slices.ContainsFunc(v.record, func(s spec.Step) bool { return strings.Contains(s.Options, "--coarse-activations") }) {
		without = " or without --coarse-activations"
	}
	hint := "quantize fewer activations, with --ops MatMul,Gemm,Conv" + without + ", or take --activation-type uint16"
	if slices.ContainsFunc(v.report.Weights, coarselyScaled) {
		hint = "give weights one scale per channel, with --block -1; if that is not enough, " + hint
	}
	return hint
}

// coarselyScaled reports whether one scale for a whole weight makes an error of a tenth or more.
func coarselyScaled(w compare.WeightMatch) bool {
	return w.CodeType != "" && w.Block == spec.PerTensor && w.SQNR < 20
}

// poorHint suggests a command that makes a better model: with float activations if OUT computes with
// codes, else with more bits, else with smaller blocks. Where ONNX Runtime computes MatMulNBits wrongly, it suggests another accuracy
// level. The other flags are those of OUT.
func (v *verifier) poorHint() string {
	if !v.bad() {
		return ""
	}
	var coded []compare.WeightMatch
	for _, w := range v.report.Weights {
		if w.CodeType != "" {
			coded = append(coded, w)
		}
	}
	if len(coded) == 0 {
		return ""
	}
	worst := slices.MinFunc(coded, func(a, b compare.WeightMatch) int { return cmp.Compare(a.SQNR, b.SQNR) })
	flags := v.ownFlags("--bits 8", formatFlags)
	switch wide := slices.ContainsFunc(coded, func(w compare.WeightMatch) bool { return !strings.HasSuffix(w.CodeType, "INT8") }); {
	case v.hazard != nil && slices.ContainsFunc(coded, func(w compare.WeightMatch) bool { return strings.HasSuffix(w.Form, "MatMulNBits") }):
		flags = v.ownFlags("--accuracy-level 1", []string{"accuracy-level"})
	case target.SumsOverflow && v.losesInSums(coded):
		flags = v.ownFlags("--reduce-range")
	case v.computesWithCodes(coded):
		flags = v.ownFlags("--bits 8 --activations weights", formatFlags, activationFlags)
	case twoBits(&worst):
		flags = v.ownFlags("--bits 4 --block 32 --algorithm best", formatFlags, codeFlags)
	case wide:
	case worst.Block == spec.PerChannel || worst.Block == spec.PerTensor:
		flags = v.ownFlags("--bits 8 --block 32 --algorithm best", formatFlags, codeFlags)
	default:
		flags = v.ownFlags("--exclude "+msg.ShellQuoted(worst.Name), autoFlags)
	}
	return fmt.Sprintf("onnxquant %s %s %s", flags, msg.ShellQuoted(v.in), msg.ShellQuoted(better(v.out)))
}

// computesWithCodes reports whether OUT has 8-bit activations, static or dynamic ones.
func (v *verifier) computesWithCodes(coded []compare.WeightMatch) bool {
	return len(v.report.Structure.Activations) > 0 || slices.ContainsFunc(coded, func(w compare.WeightMatch) bool {
		return strings.Contains(w.Form, "Integer") || strings.HasPrefix(w.Form, "Dynamic")
	})
}

// losesInSums reports whether OUT loses far more in ONNX Runtime than by exact sums, which those of its codes need not be,
// and was made without --reduce-range.
func (v *verifier) losesInSums(coded []compare.WeightMatch) bool {
	const matters = 3.0 // dB
	x := v.report.Execution
	eight := func(w compare.WeightMatch) bool { return w.CodeType == "INT8" }
	if x.QuantizedRun == nil || len(x.QuantizedRun.Outputs) != len(x.Outputs) || !slices.ContainsFunc(coded, eight) || !v.computesWithCodes(coded) {
		return false
	}
	made := slices.DeleteFunc(slices.Clone(v.record), func(s spec.Step) bool { return s.Command != "convert" })
	if len(made) != 1 || !strings.Contains(made[0].Options, "--activations") || strings.Contains(made[0].Options, "--reduce-range") {
		return false
	}
	for i, o := range x.Outputs {
		if x.QuantizedRun.Outputs[i].SQNR < o.SQNR-matters {
			return true
		}
	}
	return false
}

// better is the path of a better model, beside the path of OUT.
func better(out string) string {
	return strings.TrimSuffix(out, filepath.Ext(out)) + "-better" + filepath.Ext(out)
}
