package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/bench"
)

type benchFlags struct {
	opts              bench.Options
	seconds           int
	json, quiet, help bool
}

func (f *benchFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	fs.StringArrayVar(&f.opts.Inputs, "inputs", nil, "inputs of the models, a .pb, .npy, .npz or .jsonl `FILE`, or a\nfolder of such; the first sample is used; may be repeated\n(default: random inputs)")
	cli.AlsoData(fs, "inputs")
	fs.Var(cli.SizesOf{Value: &f.opts.Dims}, "dim", "size of a symbolic dimension of random inputs; may be repeated")
	fs.VarP(cli.NotNegative(&f.opts.Threads), "threads", "j", "number of threads of ONNX Runtime (default: as it chooses)")
	fs.Var(cli.Number[int]{Value: &f.seconds, Valid: func(n int) bool { return n >= 1 && n <= 86400 }, Want: "1 to 86400"}, "seconds",
		fmt.Sprintf("measure for at most N seconds (default %.0f)", bench.DefaultDuration.Seconds()))
	fs.StringVar(&f.opts.ORTLibrary, "ort-lib", "", ortLibUsage)
	fs.BoolVar(&f.json, "json", false, "print the figures as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func benchCommand() cli.Command {
	return cli.Command{
		Name: "bench", Summary: "compare the speed of models in ONNX Runtime",
		Args:    []string{"[flags] MODEL..."},
		Example: "in.onnx out.onnx",
		Text: `Runs models in ONNX Runtime in turns, each in a process of its own, until the figures
settle. Prints for each model: time and CPU time of a run, load time, peak memory, size,
and the time of each operator. Ratios are to the first model. All models must take the
same inputs.`,
		After: `Exit status: 0 the models ran, also if the figures did not settle; 1 a model or ONNX
Runtime failed; 2 wrong usage.`,
		Flags: func() *pflag.FlagSet { return new(benchFlags).flagSet() },
		Run:   runBench,
	}
}

func runBench(ctx context.Context, c *cli.Console, args []string) error {
	var f benchFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	switch {
	case f.help:
		return c.Help("bench")
	case fs.NArg() == 0:
		return cli.WrongCount("bench takes at least one model", fs)
	case len(f.opts.Inputs) > 0 && len(f.opts.Dims) > 0:
		return cli.Usagef("--dim is for random inputs, not with --inputs")
	}
	f.opts.Duration = time.Duration(f.seconds) * time.Second
	bar := cli.NewProgress(c, f.quiet)
	f.opts.Progress = bar.Share
	r, err := bench.Models(ctx, fs.Args(), f.opts)
	bar.Clear()
	if err != nil {
		return err
	}
	if f.json {
		return c.JSON(r)
	}
	_, err = io.WriteString(c.Stdout, r.String())
	return err
}
