package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/rules"
)

// model finds the ranges of a model's activations.
func (f *calibrateFlags) model(ctx context.Context, c *console, path string) error {
	if err := f.checkOut(); err != nil {
		return err
	}
	bar := newProgress(c, f.quiet)
	f.run.Progress = bar.step
	found, err := calibrate.Ranges(ctx, path, f.run)
	bar.clear()
	if err != nil {
		return err
	}
	if n := len(found.Without); n > 0 {
		c.warn(fmt.Sprintf("%d values have no range, because they are empty, NaN or infinite: %s", n, strings.Join(first(3, found.Without), ", ")))
	}
	var doc bytes.Buffer
	if err := found.Write(&doc); err != nil {
		return err
	}
	if f.out != "" {
		if err := writeFile(f.out, doc.Bytes()); err != nil {
			return err
		}
	}
	if f.json || f.out == "" {
		_, err = c.stdout.Write(doc.Bytes())
		return err
	}
	if !f.quiet {
		printFacts(c.stdout, []fact{
			{"ranges", fmt.Sprintf("%d values, %s, %d samples", len(found.Tensors), found.Method, found.Samples)},
			{"engine", found.Engine},
			{"out", name(f.out)},
		})
	}
	return nil
}

// importance finds the importance of the columns of a model's weights.
func (f *calibrateFlags) importance(ctx context.Context, c *console, path string) error {
	if info, err := os.Stat(f.imatrix); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if _, err := rules.LoadImportance(f.imatrix); err != nil {
			return fmt.Errorf("%s: the file exists and is no importance matrix; choose another file for --imatrix", f.imatrix)
		}
	}
	names, _, err := loadNames(f.names, "")
	if err != nil {
		return err
	}
	bar := newProgress(c, f.quiet)
	f.run.Progress = bar.step
	found, err := calibrate.FindImportance(ctx, path, f.run)
	bar.clear()
	if err != nil {
		return err
	}
	var doc bytes.Buffer
	if err := found.Write(&doc, names); err != nil {
		return err
	}
	if err := writeFile(f.imatrix, doc.Bytes()); err != nil {
		return err
	}
	if !f.quiet && !f.json {
		printFacts(c.stdout, []fact{{"importance", fmt.Sprintf("%d weights, %d samples", len(found.Sums), found.Samples)}, {"imatrix", name(f.imatrix)}})
	}
	return nil
}

// checkOut refuses to replace a file that is neither empty nor has ranges.
func (f *calibrateFlags) checkOut() error {
	info, err := os.Stat(f.out)
	if f.out == "" || err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	if _, err := rules.LoadRanges(f.out); err != nil {
		return fmt.Errorf("%s: the file exists and has no ranges; choose another file for --out", f.out)
	}
	return nil
}
