package ggml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

var registry = struct {
	sync.RWMutex
	encodings []*Encoding
}{encodings: []*Encoding{
	F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, BF16, MXFP4,
}}

// Register adds an encoding to Lookup, LookupType and All. It fails if the name (ignoring case) or the
// type is taken, or if e is incomplete.
func Register(e *Encoding) error {
	switch {
	case e.Name == "":
		return fmt.Errorf("an encoding without a name")
	case e.Elements < 1 || e.Bytes < 1:
		return fmt.Errorf("encoding %s: blocks of %d elements in %d bytes", e.Name, e.Elements, e.Bytes)
	case e.Encode == nil || e.Decode == nil:
		return fmt.Errorf("encoding %s: Encode or Decode is nil", e.Name)
	case e.Form != nil && !e.Form.fits(e.Elements):
		return fmt.Errorf("encoding %s: its form does not fit blocks of %d", e.Name, e.Elements)
	}
	registry.Lock()
	defer registry.Unlock()
	for _, r := range registry.encodings {
		if strings.EqualFold(r.Name, e.Name) || r.Type == e.Type {
			return fmt.Errorf("encoding %s, type %d: there is %s, type %d", e.Name, e.Type, r.Name, r.Type)
		}
	}
	registry.encodings = append(registry.encodings, e)
	return nil
}

// Lookup returns the encoding with a name, ignoring case.
func Lookup(name string) (*Encoding, bool) {
	return find(func(e *Encoding) bool { return strings.EqualFold(e.Name, name) })
}

// LookupType returns the encoding with ggml's number of its type.
func LookupType(t uint32) (*Encoding, bool) {
	return find(func(e *Encoding) bool { return e.Type == t })
}

// All returns all encodings, sorted by type.
func All() []*Encoding {
	registry.RLock()
	defer registry.RUnlock()
	return slices.SortedFunc(slices.Values(registry.encodings), func(a, b *Encoding) int { return cmp.Compare(a.Type, b.Type) })
}

func find(is func(*Encoding) bool) (*Encoding, bool) {
	registry.RLock()
	defer registry.RUnlock()
	if i := slices.IndexFunc(registry.encodings, is); i >= 0 {
		return registry.encodings[i], true
	}
	return nil, false
}
