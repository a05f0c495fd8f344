// Package msg makes the parts of one-line messages: names of a model, which may be long or
// hostile, sizes, and causes.
package msg

import (
	"slices"
	"strconv"
	"strings"
)

// Quote quotes and shortens a name.
func Quote(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return strconv.Quote(name)
}

// Clean is like Quote, without the quotes.
func Clean(s string) string {
	q := Quote(s)
	return q[1 : len(q)-1]
}

// Names quotes and joins names, and shortens the list.
func Names(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = Quote(name)
	}
	return Clip(strings.Join(quoted, ", "))
}

// List joins words, without duplicates and at most four. It sorts words in place.
func List(words []string) string {
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) > 4 {
		words = append(words[:4:4], "…")
	}
	return strings.Join(words, ", ")
}
