package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"onnxquant/internal/msg"
)

// Maximum characters of a cell in tables. JSON is not clipped.
const (
	maxName   = 64
	maxText   = 80
	maxReason = 240
)

// A fact is a line of a summary.
type fact struct{ label, text string }

// labelled makes facts of several lines. Only the first one has the label.
func labelled(label string, texts []string) []fact {
	var facts []fact
	for _, text := range texts {
		facts = append(facts, fact{label, text})
		label = ""
	}
	return facts
}

// printFacts breaks long lines at the width of a terminal. Where w is none, it leaves them to those
// who search.
func printFacts(w io.Writer, facts []fact) {
	columns := math.MaxInt
	if out, ok := w.(*output); ok && out.columns > 0 {
		columns = max(out.columns, leastColumns)
	}
	printWithin(columns, w, facts)
}

// leastColumns is the width of a terminal below which lines break where they may.
const leastColumns = 30

// printSummaryFacts breaks long lines, for people.
func printSummaryFacts(w io.Writer, facts []fact) { printWithin(helpWidth, w, facts) }

func printWithin(columns int, w io.Writer, facts []fact) {
	width := 9
	for _, f := range facts {
		width = max(width, len(f.label))
	}
	for _, f := range facts {
		lines := strings.ReplaceAll(wrap(f.text, columns-width-2), "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(w, "%-*s  %s\n", width, f.label, lines)
	}
}

// counts lists numbers with their keys, the largest first. After eight it adds up the
// others.
func counts(of map[string]int) []string {
	const most = 8
	keys := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	var list []string
	rest := 0
	for i, key := range keys {
		if i < most || len(keys) == most+1 { // as in first
			list = append(list, fmt.Sprintf("%d %s", of[key], key))
		} else {
			rest += of[key]
		}
	}
	if rest > 0 {
		list = append(list, others(rest))
	}
	return list
}

// listed joins names from a model, at most ten.
func listed(names []string) string {
	var list []string
	for _, s := range first(9, names) {
		list = append(list, name(s))
	}
	return strings.Join(list, ", ")
}

// first returns the first n texts, and the number of the others. A single other takes no more room than its number.
func first(n int, texts []string) []string {
	if len(texts) <= n+1 {
		return texts
	}
	return append(texts[:n:n], others(len(texts)-n))
}

func others(n int) string { return fmt.Sprintf("%d others", n) }

func printTable(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

// name prepares a name from a model for a table.
func name(s string) string { return clip(printable(s), maxName) }

// sentence prepares a reason for a table. One that is too long ends after a word.
func sentence(s string) string {
	s = printable(s)
	if utf8.RuneCountInString(s) <= maxReason {
		return s
	}
	head := string([]rune(s)[:maxReason-2])
	if i := strings.LastIndexByte(head, ' '); i > 0 {
		head = head[:i]
	}
	return head + " …"
}

func shape(dims []int64) string { return clip(msg.Shape(dims, "x"), maxName) }

func byteSize(n int64) string { return humanize.IBytes(uint64(n)) }

func sizes(before, after int64) string {
	text := byteSize(before) + " -> " + byteSize(after)
	if change := msg.Resized(before, after); change != "" {
		text += ", " + change
	}
	return text
}

// decibels formats an SQNR. Reports have 999 for no error.
func decibels(sqnr float64) string {
	if sqnr >= 999 {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", sqnr)
}
