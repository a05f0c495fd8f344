package cli

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// The scripts ask this program what may follow: onnxquant __complete SHELL INDEX WORD...
var (
	//go:embed completion/onnxquant.bash
	bashScript string
	//go:embed completion/onnxquant.zsh
	zshScript string
	//go:embed completion/onnxquant.fish
	fishScript string
	//go:embed completion/onnxquant.ps1
	powershellScript string
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func CompletionCommand() Command {
	return Command{
		Name: "completion", Rare: true, Summary: "print a script that completes commands in a shell",
		Args: []string{"bash|zsh|fish|powershell"}, Example: "bash",
		Text: `Prints a script for a shell. With it, the Tab key completes commands, flags, their values, and
the names of weights of the model on the command line.

  bash         source <(onnxquant completion bash)
  zsh          source <(onnxquant completion zsh)
  fish         onnxquant completion fish | source
  PowerShell   onnxquant completion powershell | Out-String | Invoke-Expression`,
		After: "Add the line to the file that your shell reads when it starts.",
		Flags: HelpFlagAlone,
		Run:   runCompletion,
	}
}

func runCompletion(_ context.Context, c *Console, args []string) error {
	fs := HelpFlagAlone()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if fs.Changed("help") {
		return c.Help("completion")
	}
	scripts := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript, "powershell": powershellScript}
	if fs.NArg() != 1 || scripts[strings.ToLower(fs.Arg(0))] == "" {
		return Usagef("completion takes the name of a shell: %s", OneOf(shells))
	}
	fmt.Fprint(c.Stdout, scripts[strings.ToLower(fs.Arg(0))])
	return nil
}

// completeName is the command that the scripts run. It is not in the help.
const completeName = "__complete"

// filesToo is a line that tells the shell's script to offer file names too.
const filesToo = ":files"

// runComplete prints the completions of the word with the given index, one a line: the word, a tab and
// a description.
func runComplete(c *Console, args []string) {
	if len(args) < 2 {
		return
	}
	shell, words := args[0], args[2:]
	at, err := strconv.Atoi(args[1])
	if err != nil || at < 0 || at > len(words) {
		return
	}
	if at == len(words) {
		words = append(slices.Clone(words), "")
	}
	cut := 0 // bytes of the word that the shell has completed already
	if shell == "bash" {
		words, at, cut = joinBreaks(words, at)
	}
	x := completion{app: c.App, words: words, at: at}
	x.complete()
	for _, o := range x.options {
		if o.word == filesToo || len(o.word) >= cut && strings.HasPrefix(o.word, words[at]) && Printable(o.word) == o.word {
			word := o.word
			if word != filesToo {
				word = word[cut:]
			}
			fmt.Fprintf(c.Stdout, "%s\t%s\n", word, o.text)
		}
	}
}

// joinBreaks undoes how bash breaks words at = and :. The last part of a word is what bash
// replaces.
func joinBreaks(words []string, at int) (joined []string, index, cut int) {
	isBreak := func(s string) bool { return s != "" && strings.Trim(s, "=:") == "" }
	for i, word := range words {
		n := len(joined) - 1
		if n >= 0 && (isBreak(word) || isBreak(words[i-1])) {
			before := len(joined[n])
			joined[n] += word
			if i == at {
				index, cut = n, before
				if isBreak(word) {
					cut += len(word)
				}
			}
			continue
		}
		joined = append(joined, word)
		if i == at {
			index = n + 1
		}
	}
	return joined, index, cut
}

// completion completes one of the words after the name of the program.
type completion struct {
	app     *App
	words   []string
	at      int
	options []option
}

type option struct{ word, text string }

func (x *completion) add(word, text string) { x.options = append(x.options, option{word, text}) }

func (x *completion) complete() {
	cmd, first := x.app.Main, 0
	if x.at > 0 {
		if named, ok := x.app.named(x.words[0]); ok {
			cmd, first = named, 1
		}
	}
	fs := cmd.Flags()
	word := x.words[x.at]
	if flag := x.awaited(fs, first); flag != nil {
		x.values(first, flag, "", word)
		return
	}
	if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "-") {
		if flag := Lookup(fs, name); flag != nil {
			x.values(first, flag, name+"=", value)
		}
		return
	}
	if strings.HasPrefix(word, "-") {
		x.flags(fs, word)
		return
	}
	switch {
	case x.at == 0:
		for _, cmd := range x.app.Commands {
			x.add(cmd.Name, cmd.Summary)
		}
		x.add(filesToo, "")
	case cmd.Name == "completion":
		for _, shell := range shells {
			x.add(shell, "")
		}
	case cmd.Name == "help":
		x.add("all", "everything")
		x.add("man", "the manual page")
		for _, cmd := range x.app.All() {
			x.add(cmd.Name, cmd.Summary)
		}
		for _, name := range flagNames(x.app.Main.Flags()) {
			x.add(name, "")
		}
	default:
		x.add(filesToo, "")
	}
}

// awaited is the flag whose value the word is, or nil.
func (x *completion) awaited(fs *pflag.FlagSet, first int) *pflag.Flag {
	args := x.app.doubleDashes(fs, x.words[first:x.at])
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return nil
		}
		if !strings.HasPrefix(args[i], "-") || strings.Contains(args[i], "=") {
			continue
		}
		flag := fs.Lookup(strings.TrimPrefix(args[i], "--"))
		hasValue := false
		if !strings.HasPrefix(args[i], "--") {
			flag, hasValue = lastShort(fs, args[i][1:])
		}
		if flag != nil && !hasValue && flag.NoOptDefVal == "" {
			if i == len(args)-1 {
				return flag
			}
			i++
		}
	}
	return nil
}

// flags offers the names of flags, with as many dashes as the word has.
func (x *completion) flags(fs *pflag.FlagSet, word string) {
	dashes := "--"
	if len(word) > 1 && word[1] != '-' {
		dashes = "-"
	}
	fs.VisitAll(func(f *pflag.Flag) {
		_, text := pflag.UnquoteUsage(f)
		text, _, _ = strings.Cut(strings.ReplaceAll(text, "\n", " "), ";")
		for _, name := range append([]string{f.Name}, f.Annotations[otherNames]...) {
			x.add(dashes+name, text)
		}
	})
}

// values offers values of a flag. before is the part of the word in front of the value.
func (x *completion) values(first int, flag *pflag.Flag, before, value string) {
	kind, _ := pflag.UnquoteUsage(flag)
	if kind == "LIST" {
		if i := strings.LastIndexByte(value, ','); i >= 0 {
			before += value[:i+1]
		}
	}
	if v, ok := flag.Value.(interface{ Values() []string }); ok {
		for _, word := range v.Values() {
			x.add(before+word, aboutValue(flag, word))
		}
		if _, ok := flag.Value.(interface{ OrFile() }); ok {
			x.add(filesToo, "")
		}
		return
	}
	if words := x.app.Complete(flag.Name, slices.Delete(slices.Clone(x.words), x.at, x.at+1)[first:]); words != nil {
		for _, word := range words {
			x.add(before+word, "")
		}
		return
	}
	switch {
	case flag.Value.Type() == "bool":
		x.add(before+"true", "")
		x.add(before+"false", "")
	case kind == "FILE":
		x.add(filesToo, "")
	}
}
