// Package msg formats the parts of one-line messages: names of a model, which may be long or hostile,
// sizes, and causes. It gets strings, numbers and errors and returns new ones.
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
func List(words []string) string { return join(words, func(word string) string { return word }) }

// ListNames is List of quoted names, of which there may be very many.
func ListNames(names []string) string { return join(names, Quote) }

func join(words []string, write func(string) string) string {
	slices.Sort(words)
	words = slices.Compact(words)
	var all []string
	for _, word := range words[:min(len(words), 4)] {
		all = append(all, write(word))
	}
	if len(words) > 4 {
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}
