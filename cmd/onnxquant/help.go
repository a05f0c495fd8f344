package main

import (
	"context"
	"fmt"
)

func runHelp(ctx context.Context, c *console, args []string) error {
	if len(args) == 0 {
		printHelp(c)
		return nil
	}
	for _, cmd := range commands() {
		if len(args) == 1 && cmd.name == args[0] && cmd.name != "help" {
			return cmd.run(ctx, c, []string{"--help"})
		}
	}
	return usagef("help takes a command's name, or nothing; a model file of that name is written ./help")
}

func printHelp(c *console) {
	fmt.Fprint(c.stdout, `Usage: onnxquant [flags] IN OUT
       onnxquant COMMAND
       onnxquant help COMMAND

Quantizes the weights of the ONNX model IN and writes the result to OUT. IN is
never changed; OUT appears whole or not at all. A flag may have one dash or two.

Examples:
  onnxquant -bits 4 -block 128 in.onnx out.onnx
        INT4 codes, one scale for every 128 weights
  onnxquant -bits 8 -block -1 in.onnx out.onnx
        INT8 codes, one scale per channel
  onnxquant --zero-point --exclude 'lm_head*' in.onnx out.onnx
        UINT4 codes with zero points; the head stays in float
  onnxquant --dry-run in.onnx
        show what would become of every tensor, and why

Flags:
`)
	fmt.Fprint(c.stdout, new(convertFlags).flagSet().FlagUsages())
	fmt.Fprint(c.stdout, "\nCommands:\n")
	for _, cmd := range commands() {
		fmt.Fprintf(c.stdout, "  %-10s %s\n", cmd.name, cmd.summary)
	}
	fmt.Fprint(c.stdout, `
Globs: * stands for anything, / and . included; ? for one character; [a-z] for
one of a class; \ takes away the next character's meaning.

Exit status: 0 done; 1 the input or the conversion failed; 2 wrong usage;
130 interrupted, 143 terminated.
`)
}
