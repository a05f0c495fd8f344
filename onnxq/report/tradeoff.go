package report

import (
	"math"

	"onnxquant/onnxq/analyze"
	"onnxquant/rules"
)

// frontier sets the best mixes of the candidates.
func (c *collector) frontier(a *analyze.Analysis) {
	s := &c.report.Sizes
	s.Count = max(s.Count, len(a.Weights))
	s.FloatBytes = a.FloatBytes
	scale := math.Sqrt(float64(len(a.Weights)) / float64(s.Count)) // the weights that were not tried have no error
	for _, t := range a.Totals[1:] {                               // the first is float
		if t.Error > 0 || t.OutBytes != a.FloatBytes { // else it suits no weight
			s.Candidates = append(s.Candidates, SizePoint{t.Candidate.String(), t.OutBytes, t.Error * scale})
		}
	}
	for _, p := range a.Frontier {
		s.Frontier = append(s.Frontier, SizePoint{Bytes: p.OutBytes, Error: p.Error * scale})
	}
	if len(c.report.Outs) == 0 {
		return
	}
	out := &c.report.Outs[0]
	for i := range s.Frontier {
		p := &s.Frontier[i]
		if p.Bytes <= out.Bytes {
			s.SameSize = p // errors descend
		}
		if p.Error <= out.Error && s.SameError == nil {
			s.SameError = p // sizes ascend
		}
	}
}

// mostSuggested is the number of weights that a suggestion is about.
const mostSuggested = 10

// suggest makes a precision_info for the most expensive weights: for each the smallest choice
// with at most half of its error.
func (c *collector) suggest(a *analyze.Analysis) {
	if len(c.report.Outs) == 0 {
		return
	}
	tried := map[string]*analyze.Weight{}
	for i := range a.Weights {
		tried[a.Weights[i].Name] = &a.Weights[i]
	}
	fix := &Suggestion{Before: c.report.Outs[0].Error}
	var entries []rules.PrecisionEntry
	noise := fix.Before * fix.Before * float64(c.report.Sizes.Count)
	for _, w := range c.report.Weights {
		if len(entries) == mostSuggested || w.Error == 0 || tried[w.Name] == nil {
			continue
		}
		var best *analyze.Choice
		for i := range tried[w.Name].Choices {
			choice := &tried[w.Name].Choices[i]
			if choice.Error <= w.Error/2 && (best == nil || choice.Bytes < best.Bytes) {
				best = choice
			}
		}
		if best == nil {
			continue
		}
		entries = append(entries, rules.PrecisionEntry{Pattern: rules.PatternOf(w.Name), Override: best.Candidate.Override()})
		fix.Choices = append(fix.Choices, Suggested{w.Name, best.Candidate, w.Error, best.Error, best.Bytes - w.Bytes})
		fix.Bytes += best.Bytes - w.Bytes
		noise += best.Error*best.Error - w.Error*w.Error
	}
	if len(entries) == 0 {
		return
	}
	precision, err := rules.NewPrecision(entries...)
	if err != nil {
		c.report.Notes = append(c.report.Notes, "no precision_info is suggested: "+err.Error())
		return
	}
	fix.Weights, fix.Precision = len(entries), precision
	fix.After = math.Sqrt(max(noise, 0) / float64(c.report.Sizes.Count))
	c.report.Fix = fix
}
