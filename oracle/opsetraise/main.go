// Command opsetraise lets the oracle suite reach internal/opset.
//
//	opsetraise table             prints the package's table of operators as JSON
//	opsetraise TO IN OUT         raises the model IN to opset TO
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "table":
		return json.NewEncoder(os.Stdout).Encode(slices.Collect(opset.Steps()))
	case len(args) == 3:
		to, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return err
		}
		return raise(to, args[1], args[2])
	}
	return errors.New("usage: opsetraise table | opsetraise TO IN OUT")
}

func raise(to int64, in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	m := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	n := 0
	fresh := func(hint string) string {
		n++
		return fmt.Sprintf("%s/%d", hint, n)
	}
	before := proto.Clone(m)
	checked := opset.Check(m, to)
	if !proto.Equal(before, m) {
		return errors.New("Check changed the model")
	}
	if err := opset.Raise(m, to, fresh); err != nil {
		if checked == nil {
			return fmt.Errorf("Check passed, but Raise did not: %w", err)
		}
		if !proto.Equal(before, m) {
			return errors.New("Raise failed and changed the model")
		}
		return err
	}
	if checked != nil {
		return fmt.Errorf("Raise passed, but Check did not: %w", checked)
	}
	data, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}
