// Package tune finds the settings of a conversion that reach a goal: the smallest, the fastest or the most exact model
// whose outputs, or whose score by a program of the user, stay within a limit. The flag --tune of a conversion is
// another thing: it changes scales (internal/scaletune).
//
//	opts := tune.Options{Data: []string{"data.npz"}, Make: tune.Program("onnxquant")}
//	opts.Goal.MaxDrop = &tune.Drop{Amount: 0.01, Relative: true}
//	result, err := tune.Search(ctx, "in.onnx", "out.onnx", opts)
//
// [Search] gets the path of a float model, which it only reads, and writes the model that it chooses. The caller owns the
// [Result].
//
// A candidate is a list of flags of the command onnxquant, so the command line that makes the same bytes again is part of
// the result. A process of its own makes each candidate: that takes the same way as the user's command, frees all memory,
// and can be ended when the time is over.
//
// candidates.go lists the candidates, and plans them: that gives sizes without converting anything. weigh.go adds mixes of
// formats, by what each weight alone does to the outputs, and estimates of the loss of each candidate. belief.go says how
// likely a candidate with such a loss reaches the goal, by those that were tried; promise.go says what to expect of it.
// surrogate.go corrects the estimates by what was measured, and learn.go passes that on.
// search.go takes the one that promises most until none promises anything, and trial.go makes and measures it. judge.go
// measures outputs and labels.go accuracy, score.go runs the user's program. ranking.go orders what was tried. The samples
// are divided: some calibrate, some choose, and some only judge the winner at the end.
package tune

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"onnxquant/internal/msg"
	"onnxquant/spec"
)

// Maker makes a model by the arguments of a command line of onnxquant: flags, the input, the output.
type Maker func(ctx context.Context, args []string) error

// Judge measures what a model does. With final, it does so on samples that it uses for nothing else, if it has such.
type Judge interface {
	Judge(ctx context.Context, path string, final bool) (Quality, error)
}

// Options are the options of Search.
type Options struct {
	Goal Goal

	Input   string   // the name of the float model in the result; "": its path
	Data    []string // files and folders with samples, as in package onnxq/calibrate; or empty, with Score or Judge
	Samples int      // that are used of Data, in all; 0: DefaultSamples
	Labels  string   // array of Data with the true class of each row: the score is the accuracy, in percent; "": none
	Library string   // ONNX Runtime's shared library; "": search the usual places

	Score   *Score // the user's program; nil: the outputs are compared
	Judge   Judge  // replaces both, if it is not nil
	Make    Maker
	Version string // of what Make runs: results of another version are not used again

	// Settings that all candidates have.
	Target           spec.Target
	Ops              []string // default: all
	Include, Exclude []string
	Threads          int // of conversions and of measured runs; 0: one per CPU, and one for runs

	Try    []Kind        // kinds of candidates; empty: all
	Budget time.Duration // 0: none
	Most   int           // candidates that are made; 0: DefaultMost
	Jobs   int           // candidates that are made and judged at the same time; 0: 1

	// Work is a folder that keeps results: a search with the same inputs goes on from there. "": a temporary one.
	Work string

	DryRun        bool // only list the candidates
	AllowFallback bool // write the best candidate also if none reaches the goal
	Force         bool // replace OUT also if it is read-only or a file of another kind

	Tried    func(Trial)                     // called after each candidate; or nil
	Progress func(stage string, done, n int) // 0 of 0: unknown; or nil
	Warn     func(text string)               // called for each of Result.Warnings when it is known; or nil
}

// The defaults of Options.
const (
	DefaultSamples = 256
	DefaultMost    = 24
)

// ErrGoal is wrapped by the error that no candidate reaches the goal.
var ErrGoal = errors.New("the goal is not reached")

// ErrOptions is wrapped by errors about options that are missing or contradict each other.
var ErrOptions = errors.New("the goal cannot be judged")

// scored reports whether models have a score.
func (o *Options) scored() bool { return o.Judge != nil || o.Score != nil || o.Labels != "" }

// check returns an error about contradictory options.
func (o *Options) check() error {
	g := &o.Goal
	switch {
	case o.Make == nil:
		return fmt.Errorf("%w: nothing makes the candidates: Make is nil", ErrOptions)
	case o.Judge == nil && o.Score == nil && len(o.Data) == 0:
		return fmt.Errorf("%w: nothing says what counts: give data (--data), or a program that prints a score (--score)", ErrOptions)
	case o.Labels != "" && (o.Score != nil || o.Judge != nil):
		return fmt.Errorf("%w: labels and a score program both say what counts: give one of them", ErrOptions)
	case o.Labels != "" && len(o.Data) == 0:
		return fmt.Errorf("%w: labels are an array of the data: give them (--data)", ErrOptions)
	case !o.scored() && g.MinScore != nil:
		return fmt.Errorf("%w: a least score needs labels, or a program that prints a score", ErrOptions)
	case g.MaxDrop != nil && !o.scored() && !(g.MaxDrop.Relative && g.MaxDrop.Amount <= 1):
		return fmt.Errorf("%w: without a score, a drop is a share of decisions, such as 1%%: %v is none", ErrOptions, *g.MaxDrop)
	case o.Score != nil && (quoted(o.Score.Command) || quoted(o.Score.Final)):
		return fmt.Errorf("%w: {} in a score command stands for a path that is quoted already; leave out the quotes around it", ErrOptions)
	case (g.MaxKL != nil || g.MinSQNR != nil) && len(o.Data) == 0 && o.Judge == nil:
		return fmt.Errorf("%w: limits of the outputs need data", ErrOptions)
	case g.Objective == Best && !g.Bounded():
		return fmt.Errorf("%w: the best model needs a bound, of its size or its time: without one it is the float model", ErrOptions)
	case g.Objective != Best && !g.limited():
		return fmt.Errorf("%w: the goal needs a limit of what may be lost, such as --max-drop, --max-kl, --min-sqnr or --min-score", ErrOptions)
	}
	return nil
}

// Program returns a Maker that runs a program, such as onnxquant itself. An ending context ends its whole process group.
func Program(path string, name ...string) Maker {
	return func(ctx context.Context, args []string) error {
		cmd := grouped(ctx, path, args...)
		if len(name) > 0 {
			cmd.Args[0] = name[0]
		}
		text, err := run(ctx, cmd)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if line := lastLine(text.stderr); line != "" {
			return errors.New(strings.TrimPrefix(line, "onnxquant: "))
		}
		return err
	}
}

// CommandLine is the command line of onnxquant that makes the output of a trial.
func (r *Result) CommandLine() string { return commandLine(r.Command) }

func commandLine(arguments []string) string {
	words := []string{"onnxquant"}
	for _, arg := range arguments {
		words = append(words, msg.ShellQuoted(arg))
	}
	return strings.Join(words, " ")
}

// mixPath is the file beside an output with its precision_info.
func mixPath(out string) string { return mixNamed(out, "") }

// mixOf is the name of the mix of a candidate, for commands that make another model than the winner.
func mixOf(c *candidate, out string) string { return mixNamed(out, fmt.Sprintf("-%d", c.level)) }

func mixNamed(out, number string) string {
	return strings.TrimSuffix(out, filepath.Ext(out)) + ".mix" + number + ".json"
}
