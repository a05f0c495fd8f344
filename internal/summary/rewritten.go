package summary

import (
	"fmt"
	"io"
	"time"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/restyle"
)

// RewrittenTable prints the quantized weights, with their old and new form.
func RewrittenTable(w io.Writer, weights []restyle.Weight) {
	rows := [][]string{{"NAME", "SHAPE", "DTYPE", "CODES", "FORM", "NEW FORM", "BYTES"}}
	for _, r := range weights {
		rows = append(rows, []string{cli.Named(r.Name, r.Node), cli.Shape(r.Shape), r.DType, r.CodeType, r.Form, r.NewForm, cli.ByteSize(r.Bytes) + " -> " + cli.ByteSize(r.OutBytes)})
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
}

// Rewritten sums up what became of quantized weights; done labels the number of changed ones.
func Rewritten(r *restyle.Report, done string, elapsed time.Duration) []cli.Fact {
	changed := 0
	for _, w := range r.Weights {
		if w.Changed {
			changed++
		}
	}
	facts := []cli.Fact{{Label: done, Text: fmt.Sprintf("%d of %d quantized weights", changed, len(r.Weights))}}
	if text := activationsText(r.Activations); text != "" {
		facts = append(facts, cli.Fact{Label: "kept", Text: "activations: " + text})
	}
	return append(facts,
		cli.Fact{Label: "size", Text: cli.Sizes(r.InBytes, r.OutBytes)},
		timeFact(elapsed, r.OutBytes),
		Written(r.Output, r.Data, r.MoreData, r.Verified, r.Replaced),
	)
}
