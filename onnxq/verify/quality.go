package verify

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/run/distribution"
	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
)

// Limits of Output.Varying, in dB, below which an output says that OUT is of little use; of Output.SQNR, if
// the inputs do not show what varies. They were chosen on tasks with labels: docs/verify.md.
const (
	LeastVarying       = 13.0              // of values
	LeastVaryingState  = 6.0               // of values that the next run reads
	LeastVaryingChance = onnxq.PoorOutputs // of logits and probabilities
	LeastVaryingMade   = 3.0               // of probabilities, on inputs that verify made: models are less certain of these
)

// judgeQuality lists the outputs that say that OUT is of little use.
func (v *verifier) judgeQuality() {
	for _, o := range v.report.Execution.Final() {
		if o.Elements == 0 || !isFloat(o.DType) || v.negligible(&o) {
			continue
		}
		if text := v.poor(&o); text != "" {
			v.report.Poor = append(v.report.Poor, fmt.Sprintf("output %q: %s", o.Name, text))
		}
	}
}

// WhyPoor says why the outputs of runs, on inputs of the user, say that a quantized model is of little use; "" if they do not. want
// are the float model's. states are names of outputs that the next run reads.
func WhyPoor(want, got [][]*execute.Tensor, states []string) string {
	v := &verifier{states: states, opts: Options{Inputs: []string{""}}}
	outputs, err := v.outputs(want, got)
	if err != nil {
		return ""
	}
	v.report = &Report{Execution: Execution{Outputs: outputs}}
	v.judgeQuality()
	return strings.Join(v.report.Poor, "; ")
}

// poor says why an output is of little use, or nothing. An SQNR that the user limits is not judged here.
func (v *verifier) poor(o *Output) string {
	if v.opts.MinSQNR != nil || v.opts.MinOutputSQNR != nil {
		return ""
	}
	text := fmt.Sprintf("the largest error is %.2g of the largest value", o.Relative)
	least := LeastVarying
	if o.State {
		least = LeastVaryingState
	}
	if d := o.Distribution; d != nil {
		least = LeastVaryingChance
		if d.Kind != distribution.Logits && len(v.opts.Inputs) == 0 {
			least = LeastVaryingMade
		}
		text = fmt.Sprintf("only %.3g %% of %s have the same class as in the float model, and the KL divergence is %.3g on average",
			100*d.Top1, english.Plural(d.Rows, "row", ""), d.KLDivergence.Mean)
	}
	of, sqnr := "", o.SQNR
	if o.showsWhatVaries() {
		of, sqnr = " of what differs between inputs", o.Varying
	}
	switch {
	case sqnr < least:
	case o.Distribution == nil && o.Relative >= 1:
		return text
	default:
		return ""
	}
	return fmt.Sprintf("SQNR %.1f dB%s is below %g dB: %s", sqnr, of, least, text)
}

// showsWhatVaries reports whether the inputs show what the output is about: it has some rows, and these differ by
// more than a 250th of all, and their distributions by more than a little.
func (o *Output) showsWhatVaries() bool {
	const (
		fewRows    = 8
		hardlyVary = 24.0 // dB
		tellApart  = 0.02 // nats
	)
	return o.Rows >= fewRows && o.SQNR-o.Varying <= hardlyVary && (o.Distribution == nil || o.Distribution.Information >= tellApart)
}
