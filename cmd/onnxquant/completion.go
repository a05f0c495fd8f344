package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
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

func completionCommand() command {
	return command{
		name: "completion", summary: "print a script that completes commands in a shell",
		args: []string{"bash|zsh|fish|powershell"}, example: "bash",
		text: `Prints a script for a shell. With it, the Tab key completes commands, flags, their values, and
the names of weights of the model on the command line.

  bash         source <(onnxquant completion bash)
  zsh          source <(onnxquant completion zsh)
  fish         onnxquant completion fish | source
  PowerShell   onnxquant completion powershell | Out-String | Invoke-Expression`,
		after: "Add the line to the file that your shell reads when it starts.",
		flags: helpFlagAlone,
		run:   runCompletion,
	}
}

func runCompletion(_ context.Context, c *console, args []string) error {
	fs := helpFlagAlone()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.Changed("help") {
		return c.help("completion")
	}
	scripts := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript, "powershell": powershellScript}
	if fs.NArg() != 1 || scripts[strings.ToLower(fs.Arg(0))] == "" {
		return usagef("completion takes the name of a shell: %s", oneOf(shells))
	}
	fmt.Fprint(c.stdout, scripts[strings.ToLower(fs.Arg(0))])
	return nil
}

// completeName is the command that the scripts run. It is not in the help.
const completeName = "__complete"

// filesToo is a line that tells a script to offer names of files, too.
const filesToo = ":files"

// runComplete prints what the word of an index may become, one a line: the word, a tab and a
// description.
func runComplete(c *console, args []string) {
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
	cut := 0 // what the shell has completed already, in bytes of the word
	if shell == "bash" {
		words, at, cut = joinBreaks(words, at)
	}
	x := completion{words: words, at: at}
	x.complete()
	for _, o := range x.options {
		if o.word == filesToo || len(o.word) >= cut && strings.HasPrefix(o.word, words[at]) && printable(o.word) == o.word {
			word := o.word
			if word != filesToo {
				word = word[cut:]
			}
			fmt.Fprintf(c.stdout, "%s\t%s\n", word, o.text)
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

// completion finds what one of the words after the name of the program may become.
type completion struct {
	words   []string
	at      int
	options []option
}

type option struct{ word, text string }

func (x *completion) add(word, text string) { x.options = append(x.options, option{word, text}) }

func (x *completion) complete() {
	cmd, first := conversion(), 0
	if x.at > 0 {
		if named, ok := commandNamed(x.words[0]); ok {
			cmd, first = named, 1
		}
	}
	fs := cmd.flags()
	word := x.words[x.at]
	if flag := x.awaited(fs, first); flag != nil {
		x.values(fs, first, flag, "", word)
		return
	}
	if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "-") {
		if flag := lookup(fs, name); flag != nil {
			x.values(fs, first, flag, name+"=", value)
		}
		return
	}
	if strings.HasPrefix(word, "-") {
		x.flags(fs, word)
		return
	}
	switch {
	case x.at == 0:
		for _, cmd := range commands() {
			x.add(cmd.name, cmd.summary)
		}
		x.add(filesToo, "")
	case cmd.name == "completion":
		for _, shell := range shells {
			x.add(shell, "")
		}
	case cmd.name == "help":
		x.add("all", "everything")
		x.add("man", "the manual page")
		for _, cmd := range allCommands() {
			x.add(cmd.name, cmd.summary)
		}
		for _, name := range flagNames(conversion().flags()) {
			x.add(name, "")
		}
	default:
		x.add(filesToo, "")
	}
}

// awaited is the flag whose value the word is, or nil.
func (x *completion) awaited(fs *pflag.FlagSet, first int) *pflag.Flag {
	args := doubleDashes(fs, x.words[first:x.at])
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
		x.add(dashes+f.Name, text)
	})
}

// values offers values of a flag, behind what is before them in the same word.
func (x *completion) values(fs *pflag.FlagSet, first int, flag *pflag.Flag, before, value string) {
	kind, _ := pflag.UnquoteUsage(flag)
	if kind == "LIST" {
		if i := strings.LastIndexByte(value, ','); i >= 0 {
			before += value[:i+1]
		}
	}
	if v, ok := flag.Value.(interface{ values() []string }); ok {
		for _, word := range v.values() {
			x.add(before+word, aboutValue(flag, word))
		}
		if _, ok := flag.Value.(interface{ orFile() }); ok {
			x.add(filesToo, "")
		}
		return
	}
	switch {
	case flag.Name == "include" || flag.Name == "exclude":
		for _, name := range x.weights(fs, first) {
			x.add(before+rules.PatternOf(name), "")
		}
	case flag.Name == "candidates":
		for _, f := range spec.Formats() {
			x.add(before+string(f), "")
		}
	case flag.Value.Type() == "bool":
		x.add(before+"true", "")
		x.add(before+"false", "")
	case kind == "FILE":
		x.add(filesToo, "")
	}
}

// weights lists the float tensors of the first model on the command line.
func (x *completion) weights(fs *pflag.FlagSet, first int) (names []string) {
	for i, word := range x.words[first:] {
		if first+i == x.at || strings.HasPrefix(word, "-") {
			continue
		}
		if info, err := os.Stat(word); err != nil || !info.Mode().IsRegular() {
			continue
		}
		m, err := onnxq.Open(word)
		if err != nil {
			continue
		}
		defer m.Close()
		tensors, err := m.Tensors()
		if err != nil {
			return nil
		}
		for _, t := range tensors {
			if len(t.Shape) > 1 {
				names = append(names, t.Name)
			}
		}
		return names
	}
	return nil
}
