// Command onnxquant quantizes the weights of an ONNX model.
//
//	onnxquant [flags] IN OUT
//	onnxquant COMMAND
//
// Standard output carries only what was asked for: help, the table of
// --dry-run, the JSON of --json. Everything else goes to standard error.
//
// The exit status is 0 when the job is done, 1 when the input or the conversion
// failed (one line on standard error says why), 2 when the command was called
// wrongly, and 128 plus the signal's number when a signal stopped it: 130 after
// an interrupt, 143 after a termination. After a failure no output is left.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A command is a word that can take the place of a conversion's arguments.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, c *console, args []string) error
}

func commands() []command {
	return []command{
		{"analyze", "tell what formats do to the weights of a model", runAnalyze},
		{"calibrate", "find the ranges of activations in numpy files", runCalibrate},
		{"dequantize", "fold quantized weights back to float", runDequantize},
		{"diff", "tell how two models differ", runDiff},
		{"gguf", "write a model's weights to a GGUF file, or list one", runGGUF},
		{"help", "show how to use the command", runHelp},
		{"inspect", "tell what a model holds, and what may go wrong with it", runInspect},
		{"restyle", "give quantized weights another style", runRestyle},
		{"verify", "compare a quantized model with the float one", runVerify},
		{"version", "show the version", runVersion},
	}
}

func main() {
	os.Exit(run(signalContext(), newConsole(os.Stdout, os.Stderr), os.Args[1:]))
}

// errNo is the answer of a command that was asked a question: its reasons are on
// standard output, and the exit status is 1.
var errNo = errors.New("no")

func run(ctx context.Context, c *console, args []string) int {
	err := dispatch(ctx, c, args)
	no := err == errNo
	if err == nil || no {
		err = c.flush()
	}
	if err == nil && no {
		return 1
	}
	if err == nil {
		return 0
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

// dispatch runs the command that args begin with, or else a conversion. A model
// file that is called like a command is written ./NAME.
func dispatch(ctx context.Context, c *console, args []string) error {
	if len(args) > 0 {
		if cmd, ok := commandNamed(args[0]); ok {
			return cmd.run(ctx, c, args[1:])
		}
		if isWord(args[0]) {
			if _, err := os.Lstat(args[0]); err != nil {
				return usagef("there is no command and no file called %s%s", args[0], nearestCommand(args[0]))
			}
		}
	}
	return runConvert(ctx, c, args)
}

// isWord tells whether an argument looks like a command rather than a file.
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
