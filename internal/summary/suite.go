package summary

import (
	"fmt"
	"io"

	"onnxquant/internal/cli"
	"onnxquant/quality"
)

// Suite prints the results of the benchmark suite of package quality.
func Suite(w io.Writer, results []quality.Result) {
	rows := [][]string{{"WEIGHTS", "SETTING", "SQNR", "SQNR OF A SINE", "MSE", "LARGEST ERROR", "BOUND", "COMPRESSION", "DB PER BIT"}}
	for _, r := range quality.ByEfficiency(results) {
		rows = append(rows, []string{
			r.Weights, r.Setting.String(), cli.Decibels(r.Stats.SQNR), cli.Decibels(quality.TheoreticalSQNR(r.Setting.Bits)),
			fmt.Sprintf("%.3g", r.Stats.MSE), fmt.Sprintf("%.3g", r.Stats.MaxError), suiteBound(r),
			fmt.Sprintf("%.2f", r.Compression), fmt.Sprintf("%.2f", r.Efficiency()),
		})
	}
	cli.PrintTable(w, rows)
}

// suiteBound returns the largest error in theory, and whether the errors are within it.
func suiteBound(r quality.Result) string {
	if r.WithinBounds {
		return fmt.Sprintf("%.3g, met", r.Comparison.MaxError)
	}
	return fmt.Sprintf("%.3g, exceeded", r.Comparison.MaxError)
}
