package tune

import (
	"math"
)

// Result is what a search found.
type Result struct {
	Goal    Goal    `json:"goal"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // why the verdict is as it is, in a sentence
	Input   string  `json:"input"`
	Output  string  `json:"output,omitempty"` // "" if nothing was written

	Command   []string `json:"command,omitempty"`        // arguments of onnxquant that make the same bytes
	Precision string   `json:"precision_info,omitempty"` // file with the mix, if one was chosen

	Float    Quality  `json:"float"`            // of IN, on the samples that choose
	Winner   *Trial   `json:"winner,omitempty"` // what was chosen
	RunnerUp *Trial   `json:"runner_up,omitempty"`
	Final    *Quality `json:"final,omitempty"`       // of the winner, on samples that the search never saw
	FinalOf  *Quality `json:"final_float,omitempty"` // of IN, on the same, if that is a score
	Judged   int      `json:"judged"`                // candidates that were judged on these samples

	Samples Samples `json:"samples"`
	Runtime string  `json:"runtime,omitempty"` // that ran the models

	Considered int      `json:"considered"`        // candidates that were planned
	Trials     []Trial  `json:"trials"`            // those that were made, in order
	Planned    []Trial  `json:"planned,omitempty"` // with DryRun: all, the most promising first
	Notes      []string `json:"notes,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`

	Stopped string  `json:"stopped"` // why the search ended
	Seconds float64 `json:"seconds"`

	out string // that was asked for
}

// Verdict says whether the goal is reached.
type Verdict string

const (
	Reached  Verdict = "reached"  // also on samples that the search never saw
	Chosen   Verdict = "chosen"   // by what the search saw; nothing else judged it
	Missed   Verdict = "missed"   // no candidate reaches the goal
	Fallback Verdict = "fallback" // likewise; the best one was written
	Planned  Verdict = "planned"  // with DryRun
)

// Samples counts the samples by their use.
type Samples struct {
	Calibration int `json:"calibration"` // that conversions may see
	Choice      int `json:"choice"`      // by which candidates are compared
	Final       int `json:"final"`       // that only judge the winner

	// With MaxDrop, how many rows have a decision, and in how many of them it may change.
	Rows        int `json:"rows,omitempty"` // of the samples that choose
	MayChange   int `json:"may_change,omitempty"`
	FinalRows   int `json:"final_rows,omitempty"` // of those that judge
	FinalChange int `json:"final_may_change,omitempty"`
}

// Trial is a candidate that was made and measured, or only planned.
type Trial struct {
	Flags []string `json:"flags"` // of the conversion; {mix} stands for its precision_info
	Label string   `json:"label"` // the flags in which candidates differ
	Kind  Kind     `json:"kind"`

	Planned   int64   `json:"planned_bytes"`  // before it was made
	Estimated float64 `json:"estimated_loss"` // likewise
	Chance    float64 `json:"chance"`         // that it reaches the goal, as estimated then

	Bytes   int64   `json:"bytes,omitempty"`
	Quality Quality `json:"quality"`
	Final   bool    `json:"final,omitempty"` // it was also judged on the final samples
	Time    *Time   `json:"time,omitempty"`

	Holds    bool    `json:"holds"`         // the goal, on the samples that choose
	Why      string  `json:"why,omitempty"` // it does not
	Failed   string  `json:"failed,omitempty"`
	Frontier bool    `json:"frontier"` // no other trial is better in size, loss and time
	Seconds  float64 `json:"seconds"`  // to make and judge it
	Kept     bool    `json:"kept"`     // the result is of an earlier search

	loss      float64 // see lossOf
	elapsed   float64 // seconds of the search when it ended
	candidate *candidate
	slow      bool // only its time keeps it from the goal: see Fastest
}

// Time is that of a run in ONNX Runtime.
type Time struct {
	P50   float64 `json:"p50_ms"`
	Ratio float64 `json:"ratio"`       // to the float model, of CPU time with one thread, else of p50
	Error float64 `json:"ratio_error"` // standard error of the ratio

	Confirmed bool `json:"confirmed,omitempty"` // it was measured again, for longer
}

// lossOf is one number for what is lost: the drop of the score, or the damage to the outputs.
func lossOf(float, q Quality, lower bool) float64 {
	switch {
	case q.Score != nil && float.Score != nil:
		return dropOf(*float.Score, *q.Score, lower)
	case q.Loss != nil:
		return q.Loss.Damage
	}
	return math.Inf(1)
}

// markFrontier marks the trials that no other one beats in size, loss and time.
func markFrontier(trials []Trial) {
	for i := range trials {
		a := &trials[i]
		a.Frontier = a.Failed == "" && !math.IsInf(a.loss, 1)
		for j := range trials {
			b := &trials[j]
			if i == j || b.Failed != "" || !a.Frontier {
				continue
			}
			worse := b.Bytes <= a.Bytes && b.loss <= a.loss
			better := b.Bytes < a.Bytes || b.loss < a.loss || j < i
			if a.Time != nil && b.Time != nil {
				worse = worse && b.Time.Ratio <= a.Time.Ratio
				better = better || b.Time.Ratio < a.Time.Ratio
			} else if a.Time != nil {
				worse = false // b may be slower
			}
			if worse && better {
				a.Frontier = false
			}
		}
	}
}
