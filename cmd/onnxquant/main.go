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
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// A command is a subcommand, such as inspect, or the conversion, whose name is empty.
type command struct {
	name    string
	summary string   // for the list of commands
	args    []string // what follows the name, for each way to call it
	example string   // arguments for examples of flags
	text    string   // what it does, for its help
	after   string   // what its help says below the flags
	flags   func() *pflag.FlagSet
	run     func(ctx context.Context, c *console, args []string) error
}

// commands lists all but the conversion.
func commands() []command {
	return []command{
		analyzeCommand(),
		calibrateCommand(),
		dequantizeCommand(),
		completionCommand(),
		diffCommand(),
		ggufCommand(),
		helpCommand(),
		inspectCommand(),
		reportCommand(),
		restyleCommand(),
		verifyCommand(),
		versionCommand(),
	}
}

// allCommands lists the conversion, too.
func allCommands() []command { return append([]command{conversion()}, commands()...) }

func main() {
	// The structure of a large model lives to the end, so a heap of twice its size is no gain.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
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
	var usage *usageError
	var stopped signalError
	if errors.As(err, &stopped) {
		err = stopped.alone(err)
	}
	c.fail(err)
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(c.stderr, "Run '%s' for usage.\n", helpFor(args, usage.flag))
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
		if args[0] == completeName {
			runComplete(c, args[1:])
			return nil
		}
		if cmd, ok := commandNamed(args[0]); ok {
			return cmd.run(ctx, c, args[1:])
		}
		if isWord(args[0]) {
			if _, err := os.Lstat(args[0]); err != nil {
				if hint, ok := commandHints[strings.ToLower(args[0])]; ok {
					return usagef("there is no command %s; %s", args[0], hint)
				}
				return usagef("there is no command or file named %s%s", args[0], nearestCommand(args[0]))
			}
		}
	}
	return runConvert(ctx, c, args)
}

// isWord reports whether an argument looks like a command, not like a file.
func isWord(arg string) bool {
	return arg != "" && strings.Trim(strings.ToLower(arg), "abcdefghijklmnopqrstuvwxyz") == ""
}

// commandNamed finds a command by its name or an alias, in any case.
func commandNamed(name string) (cmd command, ok bool) {
	name = strings.ToLower(name)
	if alias, ok := aliases[name]; ok {
		name = alias
	} else if name == "" {
		return command{}, false
	}
	for _, cmd := range allCommands() {
		if cmd.name == name {
			return cmd, true
		}
	}
	return command{}, false
}
