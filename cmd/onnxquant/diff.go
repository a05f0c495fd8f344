package main

import (
	"context"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/diff"
	"onnxquant/onnxq/inspect"
)

type diffFlags struct {
	json, quiet, help bool
}

func (f *diffFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	fs.BoolVar(&f.json, "json", false, "print the differences as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing; the exit status is the result")
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func diffCommand() cli.Command {
	return cli.Command{
		Name: "diff", Rare: true, Summary: "list the differences between two models",
		Args:    []string{"[flags] A B"},
		Example: "a.onnx b.onnx",
		Text: `Lists the differences between the models A and B: nodes, tensors and their contents,
inputs and outputs, opsets, metadata and everything else. It ignores how and where
contents are stored, and the record of what made a model. 'onnxquant verify' compares
a quantized model with its float one by the values of their weights.`,
		After: `Exit status: 0 the models are equal; 1 they differ, or one cannot be read; 2 wrong
usage.`,
		Flags: func() *pflag.FlagSet { return new(diffFlags).flagSet() },
		Run:   runDiff,
	}
}

func runDiff(ctx context.Context, c *cli.Console, args []string) error {
	var f diffFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("diff")
	}
	if fs.NArg() != 2 {
		return cli.WrongCount("diff takes two models", fs)
	}
	a, err := onnxq.Open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := onnxq.Open(fs.Arg(1))
	if err != nil {
		return err
	}
	defer b.Close()
	bar := cli.NewProgress(c, f.quiet)
	d, err := diff.Models(ctx, a, b, bar.Update)
	bar.Clear()
	switch {
	case err != nil:
		return err
	case f.quiet:
	case f.json:
		err = c.JSON(d)
	default:
		summary.Difference(c.Stdout, d, verifyHint(a, b, d))
	}
	if err == nil && !d.Equal {
		return cli.ErrReported
	}
	return err
}

// verifyHint says how the weights of a float and a quantized model are compared as numbers.
func verifyHint(a, b *onnxq.Model, d *diff.Difference) []string {
	if d.Equal {
		return nil
	}
	switch q, r := len(inspect.Quantized(a)) > 0, len(inspect.Quantized(b)) > 0; {
	case r && !q:
		return []string{"the weights of B are quantized: onnxquant verify A B compares their values"}
	case q && !r:
		return []string{"the weights of A are quantized: onnxquant verify B A compares their values"}
	}
	return nil
}
