package summary

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/verify"
)

// Report prints the verdicts, and where the page is.
func Report(w io.Writer, r *report.Report, page string) {
	facts := cli.Labelled("verdict", cli.First(maxLines, verdictTexts(r.Verification)))
	out := r.Outs[0]
	facts = append(facts, cli.Labelled("hint", printables(r.Verification.Hints))...)
	facts = append(facts, cli.Fact{Label: "size", Text: cli.Sizes(r.In.Bytes, out.Bytes)}, cli.Fact{Label: "error", Text: weightErrorText(r)})
	if r.Bench != nil {
		facts = append(facts, cli.Fact{Label: "a run", Text: fmt.Sprintf("takes %.2f times the CPU time of IN in %s", r.Bench.Models[1].CPURatio, r.Bench.Runtime)})
	}
	var others []string
	for _, other := range r.Outs[1:] {
		result := string(other.Verdict)
		if other.Verdict == verify.Failed {
			result += ", which does not change the exit status"
		}
		others = append(others, cli.Name(other.Path)+" "+result)
	}
	facts = append(facts, cli.Labelled("other", others)...)
	if page != "" {
		facts = append(facts, cli.Fact{Label: "page", Text: cli.Printable(page)})
	}
	cli.PrintFacts(w, facts)
}

// weightErrorText describes the error of the weights that the model quantizes. If other models
// quantize more weights, it adds the error over all compared weights.
func weightErrorText(r *report.Report) string {
	if len(r.Weights) == 0 {
		return "unknown: no quantized weight was compared"
	}
	text := fmt.Sprintf("%.4f, of %s", r.OwnError(), english.Plural(len(r.Weights), "weight", ""))
	if r.Sizes.Count > len(r.Weights) {
		text += fmt.Sprintf(" that it quantizes; %.4f, of all %d that are compared", r.Outs[0].Error, r.Sizes.Count)
	}
	return text
}
