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
//   - 2 after wrong usage,
//   - 128 plus the number of the signal that stopped it: 130 after an interrupt, 143
//     after a termination.
//
// After a failure there is no output file.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A command is a subcommand, such as inspect.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, c *console, args []string) error
}

func commands() []command {
	return []command{
		{"analyze", "compare formats for each weight, and recommend one", runAnalyze},
		{"calibrate", "find ranges of activations in numpy files", runCalibrate},
		{"dequantize", "convert quantized weights back to float", runDequantize},
		{"diff", "list the differences between two models", runDiff},
		{"gguf", "write a model's weights to a GGUF file, or list one", runGGUF},
		{"help", "show this help, or that of a command", runHelp},
		{"inspect", "show the contents, plan and known problems of a model", runInspect},
		{"restyle", "change the style of quantized weights", runRestyle},
		{"verify", "compare a quantized model with the float model", runVerify},
		{"version", "show the version", runVersion},
	}
}

func main() {
	os.Exit(run(signalContext(), newConsole(os.Stdout, os.Stderr), os.Args[1:]))
}

// errReported makes the exit status 1 without a message: the command has printed its
// findings on standard output.
var errReported = errors.New("reported on standard output")

// errIncomplete makes the exit status 3 in the same way: nothing failed, but something was
// not checked.
var errIncomplete = errors.New("reported on standard output: not compared")

func run(ctx context.Context, c *console, args []string) int {
	err := dispatch(ctx, c, args)
	if err == nil || err == errReported || err == errIncomplete {
		err = cmp.Or(c.flush(), err)
	}
	switch err {
	case nil:
		return 0
	case errReported:
		return 1
	case errIncomplete:
		return 3
	}
	c.fail(err)
	var usage *usageError
	var stopped signalError
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(c.stderr, "Run '%s' for usage.\n", helpFor(args))
		return 2
	case errors.As(err, &stopped):
		return stopped.status()
	}
	return 1
}

// dispatch runs the command named by the first argument, else a conversion. A model
// file with the name of a command is written ./NAME.
func dispatch(ctx context.Context, c *console, args []string) error {
	if len(args) > 0 {
		if cmd, ok := commandNamed(args[0]); ok {
			return cmd.run(ctx, c, args[1:])
		}
		if isWord(args[0]) {
			if _, err := os.Lstat(args[0]); err != nil {
				return usagef("there is no command or file named %s%s", args[0], nearestCommand(args[0]))
			}
		}
	}
	return runConvert(ctx, c, args)
}

// isWord reports whether an argument looks like a command, not like a file.
func isWord(arg string) bool {
	return arg != "" && strings.Trim(arg, "abcdefghijklmnopqrstuvwxyz") == ""
}

func commandNamed(name string) (cmd command, ok bool) {
	all := commands()
	i := slices.IndexFunc(all, func(cmd command) bool { return cmd.name == name })
	if i < 0 {
		return command{}, false
	}
	return all[i], true
}
