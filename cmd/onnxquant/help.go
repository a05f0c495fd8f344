package main

import (
	"context"
	"fmt"
	"strings"

	"onnxquant/internal/nearest"
)

func runHelp(ctx context.Context, c *console, args []string) error {
	if len(args) == 0 {
		printHelp(c)
		return nil
	}
	cmd, ok := commandNamed(args[0])
	switch {
	case len(args) > 1 || !ok && !strings.HasPrefix(args[0], "-"):
		return usagef("help takes the name of a command%s; for a model file named help, write ./help", nearestCommand(args[0]))
	case !ok || !cmd.hasHelp():
		printHelp(c)
		return nil
	}
	return cmd.run(ctx, c, []string{"--help"})
}

// hasHelp reports whether a command has its own help.
func (cmd command) hasHelp() bool { return cmd.name != "help" && cmd.name != "version" }

// helpFor returns the command line that prints the help for args.
func helpFor(args []string) string {
	if len(args) > 0 {
		if cmd, ok := commandNamed(args[0]); ok && cmd.hasHelp() {
			return "onnxquant help " + cmd.name
		}
	}
	return "onnxquant --help"
}

// nearestCommand suggests a command for a misspelt one.
func nearestCommand(word string) string {
	var names []string
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	if near, ok := nearest.Name(word, names); ok {
		return "; the nearest is " + near
	}
	return ""
}

func printHelp(c *console) {
	fmt.Fprint(c.stdout, `Usage: onnxquant [flags] IN OUT
       onnxquant COMMAND
       onnxquant help COMMAND

Quantizes the weights of the ONNX model IN and writes the result to OUT. IN is
never changed. OUT is written completely or not at all. Long flags may have one
dash or two.

Examples:
  onnxquant -bits 4 -block 128 in.onnx out.onnx
        INT4 codes, one scale for every 128 weights
  onnxquant -bits 8 -block -1 in.onnx out.onnx
        INT8 codes, one scale per channel
  onnxquant --zero-point --exclude 'lm_head*' in.onnx out.onnx
        UINT4 codes with zero points; keep lm_head* in float
  onnxquant --dry-run in.onnx
        show the plan for every tensor, with reasons

Flags:
`)
	fmt.Fprint(c.stdout, new(convertFlags).flagSet().FlagUsages())
	fmt.Fprint(c.stdout, "\nCommands:\n")
	for _, cmd := range commands() {
		fmt.Fprintf(c.stdout, "  %-10s %s\n", cmd.name, cmd.summary)
	}
	fmt.Fprint(c.stdout, `
Globs: * matches any characters, also / and .; ? matches one character; [a-z]
matches one of a class; \ makes the next character literal.

Exit status: 0 success; 1 the input or the conversion failed; 2 wrong usage;
130 interrupted, 143 terminated.
`)
}
