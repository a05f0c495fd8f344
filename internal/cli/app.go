package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A Command is a subcommand, such as inspect, or the main command, which has no name.
type Command struct {
	Name    string
	Summary string   // for the list of commands
	Args    []string // arguments after the name, for each way to call it
	Example string   // arguments for examples of flags
	Text    string   // help text above the flags
	After   string   // help text below the flags
	Rare    bool     // the short help only names it
	Flags   func() *pflag.FlagSet
	Run     func(ctx context.Context, c *Console, args []string) error

	ExampleFor func(flag string) string // arguments for the example of a flag, if they differ; or ""
}

// Line is a command line of the command.
func (cmd Command) Line(args string) string {
	words := []string{"onnxquant"}
	for _, word := range []string{cmd.Name, args} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// An App is a program: its commands and the data of its help. It is immutable.
type App struct {
	Main     Command   // runs if no other command is named
	Commands []Command // all but Main, in the order of the help

	Short       func(w io.Writer)                           // prints the beginning of the short help
	Footer      string                                      // ends it
	Version     string                                      // of the program
	Date        string                                      // of the version, for manual pages
	Examples    map[string]string                           // a value for each flag, by its name or by a command and its name
	Aliases     map[string]string                           // other names of commands
	CommandHint map[string]string                           // hints for commands of other tools
	FlagHints   map[string]string                           // hints for flags of other tools; a hint that begins with a flag is for commands that have it
	Meaning     func(fs *pflag.FlagSet, name string) string // suggestion for an unknown flag, or ""
	Complete    func(flag string, words []string) []string  // values of a flag, given the other words of the command line
	Stopped     func(signal, err error) error               // the error to show after a signal stopped a job; nil: the signal
}

// All lists all commands.
func (a *App) All() []Command { return append([]Command{a.Main}, a.Commands...) }

// named finds a command by its name or an alias, in any case.
func (a *App) named(name string) (cmd Command, ok bool) {
	name = strings.ToLower(name)
	if alias, ok := a.Aliases[name]; ok {
		name = alias
	} else if name == "" {
		return Command{}, false
	}
	all := a.All()
	i := slices.IndexFunc(all, func(cmd Command) bool { return cmd.Name == name })
	if i < 0 {
		return Command{}, false
	}
	return all[i], true
}

// ErrReported makes the exit status 1 without a message: the command has printed its
// findings on standard output.
var ErrReported = errors.New("reported on standard output")

// ErrIncomplete makes the exit status 3 in the same way: nothing failed, but something was
// not checked.
var ErrIncomplete = errors.New("reported on standard output: not compared")

// ErrPoor makes the exit status 4 in the same way: the verdict is poor.
var ErrPoor = errors.New("reported on standard output: poor")

// A Shortfall is the number of results that a command did not make, and has named. The exit status is 10 more than the
// number, at most 100.
type Shortfall int

func (n Shortfall) Error() string { return fmt.Sprintf("%d results are missing", int(n)) }

func (n Shortfall) status() int {
	const none, most = 10, 100
	return min(none+int(n), most)
}

// Run runs a command line and returns the exit status.
func (a *App) Run(ctx context.Context, c *Console, args []string) int {
	c.App = a
	err := a.dispatch(ctx, c, args)
	short, isShort := err.(Shortfall)
	if err == nil || err == ErrReported || err == ErrIncomplete || err == ErrPoor || isShort {
		err = cmp.Or(c.flush(), err)
	}
	if isShort && err == short {
		return short.status()
	}
	switch err {
	case nil:
		return 0
	case ErrReported:
		return 1
	case ErrIncomplete:
		return 3
	case ErrPoor:
		return 4
	}
	var usage *usageError
	var stopped SignalError
	if errors.As(err, &stopped) {
		err = a.stoppedError(stopped, err)
	}
	c.Fail(err)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return 2
	case errors.As(err, &usage):
		fmt.Fprintf(c.Stderr, "Run '%s' for usage.\n", a.helpFor(args, usage.flag))
		return 2
	case errors.As(err, &stopped):
		return stopped.status()
	}
	return 1
}

// stoppedError returns the error to show after a signal stopped a job. The place in the job where it stopped
// does not matter to the user.
func (a *App) stoppedError(s SignalError, err error) error {
	if a.Stopped == nil {
		return s
	}
	return a.Stopped(s, err)
}

// dispatch runs the command named by the first argument, else the main one. A
// file with the name of a command is written ./NAME.
func (a *App) dispatch(ctx context.Context, c *Console, args []string) error {
	if len(args) > 0 {
		if args[0] == completeName {
			runComplete(c, args[1:])
			return nil
		}
		if cmd, ok := a.named(args[0]); ok {
			return cmd.Run(ctx, c, args[1:])
		}
		if isWord(args[0]) {
			if _, err := os.Lstat(args[0]); err != nil {
				if hint, ok := a.CommandHint[strings.ToLower(args[0])]; ok {
					return Usagef("there is no command %s; %s", args[0], hint)
				}
				return Usagef("there is no command or file named %s%s", args[0], a.nearestCommand(args[0]))
			}
		}
	}
	return a.Main.Run(ctx, c, args)
}

// isWord reports whether an argument looks like a command, not like a file.
func isWord(arg string) bool {
	return arg != "" && strings.Trim(strings.ToLower(arg), "abcdefghijklmnopqrstuvwxyz") == ""
}
