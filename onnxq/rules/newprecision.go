package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"onnxquant/onnxq/spec"
)

// PrecisionEntry is a key of a precision_info with its value.
type PrecisionEntry struct {
	Pattern  string // the name of a weight or a glob; see PatternOf
	Override spec.Override
}

// NewPrecision returns a precision_info with the entries, in their order: if several match,
// the last one wins. It returns the same errors as [ParsePrecision].
func NewPrecision(entries ...PrecisionEntry) (*Precision, error) {
	for _, e := range entries {
		if !utf8.ValidString(e.Pattern) {
			return nil, fmt.Errorf("precision_info: %q is no UTF-8 text", e.Pattern)
		}
	}
	data, err := marshalPrecision(entries)
	if err != nil {
		return nil, fmt.Errorf("precision_info: %w", err)
	}
	return ParsePrecision(data)
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
	return b.Bytes(), nil
}

// PatternOf returns a pattern that matches only this name, and a name spelt like the pattern
// itself.
func PatternOf(name string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(name)
}
