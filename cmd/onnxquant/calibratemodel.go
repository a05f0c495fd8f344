package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/calibrate"
	"onnxquant/rules"
)

// ofModel runs a model, once for the importance of columns and once for ranges.
func (f *calibrateFlags) ofModel(ctx context.Context, c *cli.Console, fs *pflag.FlagSet) error {
	if fs.NArg() != 1 {
		return cli.WrongCount("calibrate --data takes one model", fs)
	}
	if f.names != "" && f.imatrix == "" {
		return cli.Usagef("--names needs --imatrix")
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
func (f *calibrateFlags) model(ctx context.Context, c *cli.Console, path string) error {
	bar := cli.NewProgress(c, f.quiet)
	f.run.Progress = bar.Step
	found, err := calibrate.Ranges(ctx, path, f.run)
	bar.Clear()
	if err != nil {
		return err
	}
	if f.imatrix == "" { // with --imatrix, importance has printed it
		c.WarnAll(found.Warnings)
	}
	if n := len(found.Without); n > 0 {
		c.Warn(fmt.Sprintf("no range for %s (empty, NaN or infinite): %s", english.Plural(n, "value", ""), strings.Join(cli.First(3, found.Without), ", ")))
	}
	var doc bytes.Buffer
	if err := found.Write(&doc); err != nil {
		return err
	}
	if f.out != "" {
		if err := cli.WriteFile(f.out, doc.Bytes()); err != nil {
			return err
		}
	}
	if f.json || f.out == "" {
		_, err = c.Stdout.Write(doc.Bytes())
		return err
	}
	if !f.quiet {
		cli.PrintFacts(c.Stdout, []cli.Fact{
			{Label: "ranges", Text: fmt.Sprintf("%s, %s, %s", english.Plural(len(found.Tensors), "value", ""), found.Method, english.Plural(int(found.Samples), "sample", ""))},
			{Label: "engine", Text: found.Engine},
			{Label: "out", Text: cli.Name(f.out)},
		})
	}
	return nil
}

// importance finds the importance of the columns of a model's weights.
func (f *calibrateFlags) importance(ctx context.Context, c *cli.Console, path string) error {
	names, _, err := loadNames(f.names, "")
	if err != nil {
		return err
	}
	bar := cli.NewProgress(c, f.quiet)
	f.run.Progress = bar.Step
	found, err := calibrate.FindImportance(ctx, path, f.run)
	bar.Clear()
	if err != nil {
		return err
	}
	c.WarnAll(found.Warnings)
	var doc bytes.Buffer
	if err := found.Write(&doc, names); err != nil {
		return err
	}
	if err := cli.WriteFile(f.imatrix, doc.Bytes()); err != nil {
		return err
	}
	if !f.quiet && !f.json {
		cli.PrintFacts(c.Stdout, []cli.Fact{{Label: "importance", Text: fmt.Sprintf("%s, %s", english.Plural(len(found.Sums), "weight", ""), english.Plural(int(found.Samples), "sample", ""))}, {Label: "imatrix", Text: cli.Name(f.imatrix)}})
	}
	return nil
}

// checkOut refuses a place where nothing can be written, and to replace a file that is neither
// empty nor what is written.
func (f *calibrateFlags) checkOut() error {
	return cmp.Or(
		cli.CheckReplace(f.out, "has no ranges; choose another file for --out", func() bool {
			_, err := rules.LoadRanges(f.out)
			return err == nil
		}),
		cli.CheckReplace(f.imatrix, "is no importance matrix; choose another file for --imatrix", func() bool {
			_, err := rules.LoadImportance(f.imatrix)
			return err == nil
		}))
}
