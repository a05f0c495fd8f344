package summary

import (
	"fmt"
	"io"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/diff"
)

// Difference lists the differences of two models, and counts what is equal.
func Difference(w io.Writer, d *diff.Difference, hints []string) {
	for _, change := range d.Changes {
		fmt.Fprintln(w, cli.Printable(change.String()))
	}
	if !d.Equal {
		fmt.Fprintln(w)
	}
	cli.PrintFacts(w, append([]cli.Fact{
		{Label: "nodes", Text: countText(d.Nodes)},
		{Label: "tensors", Text: countText(d.Initializers)},
		{Label: "inputs", Text: countText(d.Inputs)},
		{Label: "outputs", Text: countText(d.Outputs)},
	}, cli.Labelled("hint", hints)...))
}

func countText(c diff.Count) string {
	if c.A == c.B && c.A == c.Equal {
		return fmt.Sprintf("%d, all equal", c.A)
	}
	return fmt.Sprintf("%d and %d, %d equal", c.A, c.B, c.Equal)
}
