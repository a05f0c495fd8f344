package msg

import (
	"slices"
	"strconv"
	"strings"
)

// Quote makes a name of the model fit for one line of a message.
func Quote(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return strconv.Quote(name)
}

// Clean makes a short name of the model fit for one line, without quotes.
func Clean(s string) string {
	q := Quote(s)
	return q[1 : len(q)-1]
}

// List joins a few distinct words.
func List(words []string) string {
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) > 4 {
		words = append(words[:4:4], "…")
	}
	return strings.Join(words, ", ")
}
