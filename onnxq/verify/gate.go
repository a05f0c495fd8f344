package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrGate is wrapped by the error about an output whose verdict is worse than the gate allows.
var ErrGate = errors.New("the output does not pass the gate")

// Gates lists the verdicts that a gate can ask for. Passed is not one: it needs the user's limits.
var Gates = []Verdict{Failed, Poor, Sound}

// AtLeast reports whether v is least, or better.
func (v Verdict) AtLeast(least Verdict) bool {
	return slices.Index(Verdicts, v) >= slices.Index(Verdicts, least)
}

// ParseGate reads a gate: verdict>=sound, or the verdict alone.
func ParseGate(text string) (Verdict, error) {
	words := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	v := Verdict(strings.TrimPrefix(words, "verdict>="))
	switch {
	case slices.Contains(Gates, v):
		return v, nil
	case v == Passed:
		return "", errors.New("passed needs your limits, which a gate does not have; want 'verdict>=sound'")
	}
	return "", errors.New("want 'verdict>=failed', 'verdict>=poor' or 'verdict>=sound'")
}

// Judged is the short form of a Report.
type Judged struct {
	Verdict Verdict  `json:"verdict"`                  // failed, poor, sound or passed
	Reasons []string `json:"reasons"`                  // why
	SQNR    *float64 `json:"output_sqnr_db,omitempty"` // the least of all outputs, in dB, at most 999
	Cosine  *float64 `json:"output_cosine,omitempty"`  // the least of all outputs
}

// Judged returns the verdict and the worst figures of the outputs.
func (r *Report) Judged() *Judged {
	j := &Judged{Verdict: r.Verdict, Reasons: r.Reasons()}
	for _, o := range r.Execution.Final() {
		j.SQNR, j.Cosine = lesser(j.SQNR, o.SQNR), lesser(j.Cosine, o.Cosine)
	}
	return j
}

// lesser is the smaller one of two figures. NaN is no figure.
func lesser(a *float64, b float64) *float64 {
	if math.IsNaN(b) || a != nil && *a <= b {
		return a
	}
	return &b
}

// Gate returns what onnxq.Options.Try takes: it compares the finished output with the model in, and fails if the
// verdict is worse than want. judged gets the result in any case.
func Gate(in string, want Verdict, opts Options, judged func(*Judged)) func(ctx context.Context, out string) error {
	return func(ctx context.Context, out string) error {
		r, err := Models(ctx, in, out, opts)
		if err != nil {
			return fmt.Errorf("the output cannot be judged: %w", err)
		}
		j := r.Judged()
		judged(j)
		if j.Verdict.AtLeast(want) {
			return nil
		}
		return fmt.Errorf("%w: the verdict is %s, and %s is wanted: %s", ErrGate, j.Verdict, want, strings.Join(j.Reasons, "; "))
	}
}
