package verify

import (
	"fmt"
	"strings"
)

// Verdict says in one word what a comparison found.
type Verdict string

const (
	// Failed: OUT is broken, or beyond a limit that the user gave, or its outputs were not compared
	// although that is required.
	Failed Verdict = "failed"
	// Poor: OUT runs, and its outputs say that it is of little use.
	Poor Verdict = "poor"
	// Sound: structure and codes are right, and nothing speaks against OUT: its outputs are not poor. More was not judged,
	// because the limits or the data are not the user's.
	Sound Verdict = "sound"
	// Passed: OUT is within the user's limits on the user's data.
	Passed Verdict = "passed"
)

// Verdicts lists the verdicts, the worst first.
var Verdicts = []Verdict{Failed, Poor, Sound, Passed}

// verdict returns the verdict of the failures and the reasons why OUT is poor.
func (v *verifier) verdict() Verdict {
	r := v.report
	switch {
	case len(r.Failures) > 0:
		return Failed
	case len(r.Poor) > 0, r.Execution.Disagreement != nil:
		return Poor
	case r.Limited && r.Execution.Compared && len(v.opts.Inputs) > 0:
		return Passed
	}
	return Sound
}

// Reasons says why the verdict is as it is.
func (r *Report) Reasons() []string {
	switch r.Verdict {
	case Failed:
		if r.NotCompared() && !r.fewFinite() {
			return []string{"the outputs were not compared"} // why, says the execution
		}
		return r.Failures
	case Poor:
		if d := r.Execution.Disagreement; d != nil {
			return append([]string{d.String()}, r.Poor...)
		}
		return r.Poor
	case Passed:
		return []string{"within your limits, on your data"}
	}
	right := "structure and codes are right"
	if r.Structure.Unread {
		right = "nothing but the outputs was compared"
	}
	limits := right + "; quality was not judged"
	if r.Limited {
		limits = "within your limits"
	}
	switch {
	case !r.Execution.Compared:
		return []string{limits + ": the outputs were not compared"}
	case r.Execution.Sizes != "" || !r.Given:
		return []string{limits + ": the inputs are made up, --inputs takes your data"}
	}
	return []string{right + ", and the outputs are not poor: no limit of yours was given, --min-output-sqnr sets one"}
}

// String returns the verdict, the reasons for it, and the outputs, a line each.
func (r *Report) String() string {
	var b strings.Builder
	for _, reason := range r.Reasons() {
		fmt.Fprintf(&b, "%s: %s\n", r.Verdict, reason)
	}
	for _, o := range r.Execution.Final() {
		fmt.Fprintf(&b, "output %q: SQNR %.1f dB, cosine %.4f", o.Name, o.SQNR, o.Cosine)
		if d := o.Distribution; d != nil {
			fmt.Fprintf(&b, ", the same class in %.4g %% of %d rows", 100*d.Top1, d.Rows)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}
