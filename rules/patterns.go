package rules

import (
	"slices"
	"strings"
)

// Patterns is a list of exact names and globs, as MatchName takes them. Exact names are looked up
// in a map; only globs with a *, ? or class are tried one by one. A nil Patterns matches nothing.
type Patterns struct {
	list  []string
	exact map[string]bool
	globs []string // patterns of the list that may match several names
}

// NewPatterns returns a list of patterns.
func NewPatterns(list []string) *Patterns {
	p := &Patterns{list: list, exact: make(map[string]bool, len(list))}
	for _, pattern := range list {
		p.exact[pattern] = true
		if name, one := onlyName(pattern); one {
			p.exact[name] = true
		} else {
			p.globs = append(p.globs, pattern)
		}
	}
	return p
}

// Empty reports whether there is no pattern.
func (p *Patterns) Empty() bool { return p == nil || len(p.list) == 0 }

// Match reports whether a pattern matches name.
func (p *Patterns) Match(name string) bool {
	return p != nil && (p.exact[name] || slices.ContainsFunc(p.globs, func(glob string) bool { return matchGlob(glob, name) }))
}

// Unused returns the first pattern that matches none of names, and whether there is one.
func (p *Patterns) Unused(names []string) (pattern string, found bool) {
	if p.Empty() {
		return "", false
	}
	unused := unusedOf(p.list, names)
	if len(unused) == 0 {
		return "", false
	}
	return p.list[unused[0]], true
}

// unusedOf returns the indices of the patterns that match none of names. It is fast for very many
// names and few patterns.
func unusedOf(patterns, names []string) (unused []int) {
	exact := map[string]bool{} // name that a pattern stands for → whether names has it
	for _, pattern := range patterns {
		exact[pattern] = false
		if name, one := onlyName(pattern); one {
			exact[name] = false
		}
	}
	for _, name := range names {
		if _, wanted := exact[name]; wanted {
			exact[name] = true
		}
	}
	for i, pattern := range patterns {
		name, one := onlyName(pattern)
		if exact[pattern] || one && exact[name] {
			continue
		}
		if one || !slices.ContainsFunc(names, func(name string) bool { return matchGlob(pattern, name) }) {
			unused = append(unused, i)
		}
	}
	return unused
}

// onlyName returns the one name that a pattern matches as a glob, if each *, ? and [ in it follows
// a backslash.
func onlyName(pattern string) (name string, one bool) {
	if !isGlob(pattern) {
		return pattern, true
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*' || c == '?' || c == '[':
			return "", false
		case c == '\\' && i+1 < len(pattern):
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}
