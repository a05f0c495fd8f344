package main

import (
	"context"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
)

type inspectFlags struct {
	planFlags
	json, all, help bool
}

func (f *inspectFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	f.planFlags.define(fs)
	fs.BoolVar(&f.all, "all", false, "list everything: each quantized weight, small tensors, all\nplaces")
	fs.BoolVar(&f.json, "json", false, "print everything as JSON")
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func inspectCommand() cli.Command {
	return cli.Command{
		Name: "inspect", Summary: "show the contents, plan and known problems of a model",
		Args:    []string{"[flags] MODEL"},
		Example: "model.onnx",
		Text: `Prints the contents of a model (versions, tensors by type, external files, quantized
weights of any tool), the plan of a conversion with the same flags, and known problems
of runtimes with the model.`,
		After: `Exit status: 0 also if there are problems; 1 the model cannot be read; 2 wrong usage.`,
		Flags: func() *pflag.FlagSet { return new(inspectFlags).flagSet() },
		Run:   runInspect,
	}
}

func runInspect(ctx context.Context, c *cli.Console, args []string) error {
	var f inspectFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("inspect")
	}
	if fs.NArg() != 1 {
		return cli.WrongCount("inspect takes one model", fs)
	}
	if err := f.planFlags.finish(fs); err != nil {
		return err
	}
	paths, remove, err := remote.Local(ctx, fs.Args(), false)
	if err != nil {
		return err
	}
	defer remove()
	m, err := onnxq.Open(paths[0])
	if err != nil {
		return err
	}
	defer m.Close()
	in := inspect.Model(m, f.opts)
	if f.json {
		return c.JSON(in)
	}
	summary.Inspection(c.Stdout, fs.Arg(0), in, f.all)
	return nil
}
