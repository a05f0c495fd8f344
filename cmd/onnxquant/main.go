// Command onnxquant quantizes the weights of an ONNX model.
//
//	onnxquant [flags] IN OUT
//	onnxquant COMMAND
//
// Standard output has only the requested output: help, the table of --dry-run, the
// JSON of --json. Everything else goes to standard error.
//
// The exit status is
//
//   - 0 after success,
//   - 1 if the input or the conversion failed; one line on standard error says why,
//   - 2 after wrong usage, or if a setting does not fit the weights,
//   - 4 if --gate refused the output,
//   - 10 more than the number of outputs that a batch did not make, at most 100,
//   - 128 plus the number of the signal that stopped it: 130 after an interrupt, 143
//     after a termination.
//
// After a failure there is no output file.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"onnxquant/internal/cli"
	"onnxquant/internal/othertools"
	"onnxquant/onnxq"
	"onnxquant/onnxq/batch"
)

// program has a row for each command.
func program() *cli.App {
	return &cli.App{
		Main: conversion(),
		Commands: []cli.Command{
			analyzeCommand(),
			batchCommand(),
			benchCommand(),
			calibrateCommand(),
			dequantizeCommand(),
			cli.CompletionCommand(),
			diffCommand(),
			ggufCommand(),
			cli.HelpCommand(),
			inspectCommand(),
			reportCommand(),
			restyleCommand(),
			tuneCommand(),
			verifyCommand(),
			cli.VersionCommand(),
		},
		Short: printDaily, Footer: shortFooter,
		Version: buildVersion(), Date: cli.BuildDate(),
		Examples: examples, Aliases: aliases, CommandHint: othertools.Commands, FlagHints: othertools.Flags, Meaning: otherMeaning,
		Complete: completions, Stopped: kept,
	}
}

// kept says whether a job that a signal stopped can go on.
func kept(signal, err error) error {
	if errors.Is(err, onnxq.ErrKept) {
		return fmt.Errorf("%w (%w)%s", signal, onnxq.ErrKept, resumeHint)
	}
	if errors.Is(err, errWork) {
		return fmt.Errorf("%w; %w", signal, errWork)
	}
	return signal
}

func main() {
	// The structure of a large model lives to the end, so a heap of twice its size is no gain.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	batch.Follow()
	os.Exit(program().Run(cli.SignalContext(), cli.NewConsole(os.Stdout, os.Stderr), os.Args[1:]))
}
