package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/discover"
	"onnxquant/internal/msg"
	"onnxquant/internal/rewrite"
	"onnxquant/spec"
)

// ErrFallback is wrapped by errors that a setting that was asked for is not applied.
var ErrFallback = errors.New("a setting that was asked for is not applied")

// Unmet is a setting that was asked for and that some weights do not get.
type Unmet struct {
	Setting string // such as "algorithm"
	Asked   string // such as "best"; or ""
	Got     string // what these weights get; "" if they stay in float
	Why     string // the most frequent reason
	Weights []string
	Of      int   // weights that were selected
	Memory  int64 // that it takes, if there is too little

	expected bool
}

// Unmet lists the settings that were asked for and that some weights do not get, the most frequent first.
func (p *Plan) Unmet() (list []*Unmet) {
	selected := 0
	reasons := map[*Unmet]map[string]int{}
	for _, d := range p.Decisions {
		if d.Selected {
			selected++
		}
		for _, m := range d.Unmet {
			i := slices.IndexFunc(list, func(u *Unmet) bool {
				return u.Setting == m.Setting && u.Asked == m.Asked && u.Got == m.Got && u.expected == m.Expected
			})
			if i < 0 {
				i, list = len(list), append(list, &Unmet{Setting: m.Setting, Asked: m.Asked, Got: m.Got, expected: m.Expected})
				reasons[list[i]] = map[string]int{}
			}
			u := list[i]
			u.Weights, u.Memory = append(u.Weights, d.Value.Path), max(u.Memory, m.Memory)
			if reasons[u][m.Why]++; u.Why == "" || reasons[u][m.Why] > reasons[u][u.Why] {
				u.Why = m.Why
			}
		}
	}
	list = append(list, p.idle()...)
	for _, u := range list {
		u.Of = selected
	}
	slices.SortStableFunc(list, func(a, b *Unmet) int { return cmp.Compare(len(b.Weights), len(a.Weights)) })
	return list
}

// idle lists the settings that are about weights of some kind, if weights are quantized and none is of that
// kind.
func (p *Plan) idle() (list []*Unmet) {
	o := p.opts.Discover
	nbits := func(w rewrite.Weight) bool { return w.Choice.NBits.Product && !w.Choice.NBits.Bnb4 }
	const noNBits = "no weight becomes a MatMulNBits; style nbits makes these, or target ort"
	for _, s := range []struct {
		asked bool
		name  string
		about func(rewrite.Weight) bool
		why   string
	}{
		{o.AccuracyLevel != spec.AccuracyDefault, "accuracy-level", func(w rewrite.Weight) bool { return nbits(w) || w.Choice.NBits.Experts }, "no weight becomes a MatMulNBits or QMoE; style nbits makes these, or target ort"},
		{o.NoFoldBias, "no-fold-bias", nbits, noNBits},
		{o.Rule != "", "scale-rule", func(w rewrite.Weight) bool { return w.Choice.Format.Traits().Family == spec.Microscaling }, "no weight gets mxfp4 or mxfp8"},
	} {
		if s.asked && len(p.Weights) > 0 && !slices.ContainsFunc(p.Weights, s.about) {
			list = append(list, &Unmet{Setting: s.name, Why: s.why})
		}
	}
	return list
}

// warnOfConvolutions says that no weight gets the format of convolutions.
func (p *Plan) warnOfConvolutions() {
	o := p.opts.Discover
	convolves := func(d *discover.Decision) bool { return d.Selected && d.Convolves() }
	if o.ConvFormat != "" && o.ConvFormat != spec.Float && !slices.ContainsFunc(p.Decisions, convolves) {
		p.warn("the format of convolutions changes nothing: no weight of a convolution is selected; --ops all selects them, if there are any")
	}
}

// setting is the setting with its value.
func (u *Unmet) setting() string { return strings.TrimSpace(u.Setting + " " + u.Asked) }

// String says which weights get what, and why.
func (u *Unmet) String() string {
	if len(u.Weights) == 0 {
		return fmt.Sprintf("%s: %s", u.setting(), u.Why)
	}
	get := "stay in float"
	if len(u.Weights) == 1 {
		get = "stays in float"
	}
	if u.Got != "" {
		get = english.PluralWord(len(u.Weights), "gets ", "get ") + u.Got
	}
	return fmt.Sprintf("%s: %d of %s %s: %s", u.setting(), len(u.Weights), english.Plural(u.Of, "weight", ""), get, u.Why)
}

// CheckUnmet returns an error if a setting that was asked for is not applied: to no weight, to more than a
// quarter of the weights, or for lack of memory. To fewer weights, a setting may not fit. Settings
// that are allowed are left out, and those of forms that no weight gets, such as the accuracy level.
func (p *Plan) CheckUnmet(allowed []string) error {
	list := p.Unmet()
	for _, u := range list {
		if len(u.Weights) == 0 || slices.Contains(allowed, u.Setting) {
			continue
		}
		missed, all := 0, 0 // weights that do not get the setting
		for _, o := range list {
			if o.Setting == u.Setting && o.Asked == u.Asked {
				all += len(o.Weights)
				if !o.expected {
					missed += len(o.Weights)
				}
			}
		}
		switch {
		case u.Memory > 0:
			return fmt.Errorf("%w: %w for %s: %s takes --memory of %d MiB or more", ErrFallback, ErrMemory, u.setting(), msg.ListNames(u.Weights), u.Memory>>20)
		case all == u.Of, 4*missed > u.Of:
			return fmt.Errorf("%w: %s", ErrFallback, u)
		}
	}
	return nil
}
