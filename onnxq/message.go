package onnxq

import (
	"slices"
	"strconv"
	"strings"
)

// quote makes a name of the model fit for one line of a message.
func quote(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return strconv.Quote(name)
}

// clean makes a short name of the model fit for one line, without quotes.
func clean(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}

// list joins a few distinct words.
func list(words []string) string {
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) > 4 {
		words = append(words[:4:4], "…")
	}
	return strings.Join(words, ", ")
}
