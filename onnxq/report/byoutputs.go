package report

import (
	"cmp"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/rules"
	"onnxquant/spec"
)

const (
	mostSpread   = 4         // candidates over the range of sizes
	largestToTry = 256 << 20 // bytes of the float model: each candidate is written and run
)

// compareFormats sets ByOutputs if the first model is calibrated: some of the candidates are written to a
// temporary folder, without data, and run on the inputs on which the models were compared.
func (c *collector) compareFormats(in string, weights []string) error {
	if !c.report.byOutputs() || len(c.report.Sizes.Candidates) == 0 || c.report.In.Bytes > largestToTry {
		return nil
	}
	folder, err := os.MkdirTemp("", "onnxquant-report-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for i, p := range shownBeside(c.report.Sizes.Candidates, c.report.Outs[0].Bytes) {
		c.stage("running " + p.Name)
		point, err := c.runFormat(in, filepath.Join(folder, strconv.Itoa(i)+".onnx"), p.Name, weights)
		switch {
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case err == nil && point.Error > 0: // else the candidate suits no runtime here: the others are shown
			c.report.Sizes.ByOutputs = append(c.report.Sizes.ByOutputs, point)
		}
	}
	return nil
}

// runFormat converts the named weights to one format, and compares outputs.
func (c *collector) runFormat(in, out, name string, weights []string) (SizePoint, error) {
	candidate, err := spec.ParseCandidate(name)
	if err != nil {
		return SizePoint{}, err
	}
	opts := c.quantizing(weights)
	if opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: candidate.Override()}); err != nil {
		return SizePoint{}, err
	}
	made, err := onnxq.Convert(c.ctx, in, out, opts)
	if err != nil {
		return SizePoint{}, err
	}
	run := c.opts.Verify
	run.Detail, run.Trace = false, false
	v, err := verify.Models(c.ctx, in, out, run)
	if err != nil {
		return SizePoint{}, err
	}
	return SizePoint{name, made.Plan.OutBytes, outputError(v.Execution.Final())}, nil
}

// shownBeside returns candidates over the range of sizes, and the one whose size is nearest to that of a model.
func shownBeside(candidates []SizePoint, size int64) []SizePoint {
	list := spread(candidates, mostSpread)
	nearest := slices.MinFunc(candidates, func(a, b SizePoint) int {
		return cmp.Compare(math.Abs(float64(a.Bytes-size)), math.Abs(float64(b.Bytes-size)))
	})
	if !slices.Contains(list, nearest) {
		list = append(list, nearest)
	}
	return list
}

// spread returns at most n of the points that have less error than all smaller ones, from the smallest to the
// largest.
func spread(points []SizePoint, n int) []SizePoint {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b SizePoint) int { return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Error, b.Error)) })
	var best []SizePoint
	for _, p := range sorted {
		if len(best) == 0 || p.Error < best[len(best)-1].Error {
			best = append(best, p)
		}
	}
	if len(best) <= n {
		return best
	}
	var chosen []SizePoint
	for i := range n {
		chosen = append(chosen, best[i*(len(best)-1)/(n-1)])
	}
	return chosen
}
