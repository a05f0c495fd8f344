package cli

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
	MaxName   = 64
	MaxText   = 80
	MaxReason = 240
)

// A Fact is a line of a summary.
type Fact struct{ Label, Text string }

// Labelled makes facts of several lines. Only the first one has the label.
func Labelled(label string, texts []string) []Fact {
	var facts []Fact
	for _, text := range texts {
		facts = append(facts, Fact{label, text})
		label = ""
	}
	return facts
}

// PrintFacts prints facts. It breaks long lines at the width of a terminal. If w is no terminal, it
// does not break them, so that they can be searched.
func PrintFacts(w io.Writer, facts []Fact) {
	columns := math.MaxInt
	if out, ok := w.(*output); ok && out.columns > 0 {
		columns = max(out.columns, leastColumns)
	}
	printWithin(columns, w, facts)
}

// leastColumns is the width of a terminal below which lines break where they may.
const leastColumns = 30

// PrintSummaryFacts breaks long lines, for people.
func PrintSummaryFacts(w io.Writer, facts []Fact) { printWithin(HelpWidth, w, facts) }

func printWithin(columns int, w io.Writer, facts []Fact) {
	width := 9
	for _, f := range facts {
		width = max(width, len(f.Label))
	}
	for _, f := range facts {
		lines := strings.ReplaceAll(wrap(f.Text, columns-width-2), "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(w, "%-*s  %s\n", width, f.Label, lines)
	}
}

// Counts lists numbers with their keys, the largest first. After eight it adds up the rest.
func Counts(of map[string]int) []string {
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
		list = append(list, Others(rest))
	}
	return list
}

// Listed joins names from a model, at most ten.
func Listed(names []string) string {
	var list []string
	for _, s := range First(9, names) {
		list = append(list, Name(s))
	}
	return strings.Join(list, ", ")
}

// First returns the first n texts, and the number of the rest. A rest of one is shown itself, because
// its number takes as much room.
func First(n int, texts []string) []string {
	if len(texts) <= n+1 {
		return texts
	}
	return append(texts[:n:n], Others(len(texts)-n))
}

func Others(n int) string { return fmt.Sprintf("%d others", n) }

func PrintTable(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

// Name prepares a name from a model for a table.
func Name(s string) string { return Clip(Printable(s), MaxName) }

// Named prepares the name of a weight, with the node that reads it if the name says nothing; node is ""
// otherwise.
func Named(name, node string) string {
	if node == "" {
		return Name(name)
	}
	return Name(name) + " (" + Name(node) + ")"
}

// Sentence prepares a reason for a table. One that is too long ends after a word.
func Sentence(s string) string {
	s = Printable(s)
	if utf8.RuneCountInString(s) <= MaxReason {
		return s
	}
	head := string([]rune(s)[:MaxReason-2])
	if i := strings.LastIndexByte(head, ' '); i > 0 {
		head = head[:i]
	}
	return head + " …"
}

func Shape(dims []int64) string { return Clip(msg.Shape(dims, "x"), MaxName) }

func ByteSize(n int64) string { return humanize.IBytes(uint64(n)) }

func Sizes(before, after int64) string {
	text := ByteSize(before) + " -> " + ByteSize(after)
	if change := msg.Resized(before, after); change != "" {
		text += ", " + change
	}
	return text
}

// Decibels formats an SQNR. Reports have 999 for no error.
func Decibels(sqnr float64) string {
	if sqnr >= 999 {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", sqnr)
}

// Facts makes facts of labels and texts.
func Facts(all [][2]string) (facts []Fact) {
	for _, f := range all {
		facts = append(facts, Fact{f[0], f[1]})
	}
	return facts
}
