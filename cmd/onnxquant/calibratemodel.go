package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/rules"
)

// ofModel runs a model, once for the importance of columns and once for ranges.
func (f *calibrateFlags) ofModel(ctx context.Context, c *console, fs *pflag.FlagSet) error {
	if fs.NArg() != 1 {
		return wrongCount("calibrate --data takes one model", fs)
	}
	if f.names != "" && f.imatrix == "" {
		return usagef("--names needs --imatrix")
	}
	if err := f.checkOut(); err != nil {
		return err
	}
	if f.imatrix != "" {
		if err := f.importance(ctx, c, fs.Arg(0)); err != nil || f.out == "" && !f.json {
			return err
		}
	}
	return f.model(ctx, c, fs.Arg(0))
}

// model finds the ranges of a model's activations.
func (f *calibrateFlags) model(ctx context.Context, c *console, path string) error {
	bar := newProgress(c, f.quiet)
	f.run.Progress = bar.step
	found, err := calibrate.Ranges(ctx, path, f.run)
	bar.clear()
	if err != nil {
		return err
	}
	if f.imatrix == "" { // else importance has told
		c.warnAll(found.Warnings)
	}
	if n := len(found.Without); n > 0 {
		c.warn(fmt.Sprintf("no range for %s (empty, NaN or infinite): %s", english.Plural(n, "value", ""), strings.Join(first(3, found.Without), ", ")))
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
			{"ranges", fmt.Sprintf("%s, %s, %s", english.Plural(len(found.Tensors), "value", ""), found.Method, english.Plural(int(found.Samples), "sample", ""))},
			{"engine", found.Engine},
			{"out", name(f.out)},
		})
	}
	return nil
}

// importance finds the importance of the columns of a model's weights.
func (f *calibrateFlags) importance(ctx context.Context, c *console, path string) error {
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
	c.warnAll(found.Warnings)
	var doc bytes.Buffer
	if err := found.Write(&doc, names); err != nil {
		return err
	}
	if err := writeFile(f.imatrix, doc.Bytes()); err != nil {
		return err
	}
	if !f.quiet && !f.json {
		printFacts(c.stdout, []fact{{"importance", fmt.Sprintf("%s, %s", english.Plural(len(found.Sums), "weight", ""), english.Plural(int(found.Samples), "sample", ""))}, {"imatrix", name(f.imatrix)}})
	}
	return nil
}

// checkOut refuses a place where nothing can be written, and to replace a file that is neither
// empty nor what is written.
func (f *calibrateFlags) checkOut() error {
	if err := cmp.Or(checkPlace(f.out), checkPlace(f.imatrix)); err != nil {
		return err
	}
	if hasContent(f.out) {
		if _, err := rules.LoadRanges(f.out); err != nil {
			return fmt.Errorf("%s: the file exists and has no ranges; choose another file for --out", f.out)
		}
	}
	if hasContent(f.imatrix) {
		if _, err := rules.LoadImportance(f.imatrix); err != nil {
			return fmt.Errorf("%s: the file exists and is no importance matrix; choose another file for --imatrix", f.imatrix)
		}
	}
	return nil
}
