package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"onnxquant/internal/msg"
	"onnxquant/spec"
)

// PrecisionEntry is a key of a precision_info with its value.
type PrecisionEntry struct {
	Pattern  string // the name of a weight or a glob; see PatternOf
	Override spec.Override
}

// NewPrecision returns a precision_info with the entries in the given order. If several match, the
// last one wins. NewPrecision refuses what [ParsePrecision] refuses.
func NewPrecision(entries ...PrecisionEntry) (*Precision, error) {
	p := &Precision{source: "precision_info", exact: map[string]int{}, only: map[string]int{}}
	for _, e := range entries {
		if !utf8.ValidString(e.Pattern) {
			return nil, fmt.Errorf("%s: %q is not UTF-8 text", p.source, e.Pattern)
		}
		if err := p.checkPattern(e.Pattern); err != nil {
			return nil, fmt.Errorf("%s: %w", p.source, err)
		}
		if err := checkOverride(e.Override); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", p.source, e.Pattern, err)
		}
		p.add(precisionKey{pattern: e.Pattern, override: e.Override})
	}
	return p, nil
}

// Entries returns the entries in the order of the document.
func (p *Precision) Entries() []PrecisionEntry {
	if p == nil {
		return nil
	}
	entries := make([]PrecisionEntry, len(p.keys))
	for i, k := range p.keys {
		entries[i] = PrecisionEntry{k.pattern, k.override}
	}
	return entries
}

// MarshalJSON writes the document, which ParsePrecision reads.
func (p *Precision) MarshalJSON() ([]byte, error) { return marshalPrecision(p.Entries()) }

func marshalPrecision(entries []PrecisionEntry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteString("{")
	for i, e := range entries {
		if i > 0 {
			b.WriteString(",")
		}
		if err := enc.Encode(e.Pattern); err != nil {
			return nil, err
		}
		b.WriteString(":")
		if err := enc.Encode(e.Override); err != nil {
			return nil, err
		}
	}
	b.WriteString("}")
	return msg.EscapedJSON(b.Bytes()), nil
}

// PatternOf returns a pattern that matches only this name. A name spelt like the pattern matches,
// too.
func PatternOf(name string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(name)
}
