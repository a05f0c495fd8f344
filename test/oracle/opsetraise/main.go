// Command opsetraise lets the oracle suite reach internal/opset.
//
//	opsetraise table             prints the package's table of operators as JSON
//	opsetraise defaults          prints the defaults of attributes as JSON
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

	"onnxquant/internal/modelfile"
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
	case len(args) == 1 && args[0] == "defaults":
		return json.NewEncoder(os.Stdout).Encode(opset.Defaults())
	case len(args) == 3:
		to, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return err
		}
		return raise(to, args[1], args[2])
	}
	return errors.New("usage: opsetraise table | opsetraise defaults | opsetraise TO IN OUT")
}

// inlineSize is the size up to which the converter lets raising see contents.
const inlineSize = 1 << 10

// raise does as the converter: the contents of large tensors are not part of
// the structure while it is raised.
func raise(to int64, in, out string) error {
	m, err := modelfile.Open(in)
	if err != nil {
		return err
	}
	defer m.Close()
	var large []*onnxpb.TensorProto
	for _, t := range modelfile.Tensors(m.Proto) {
		if p, err := m.Payload(t); err != nil {
			return err
		} else if p != nil && p.Size() > inlineSize {
			large = append(large, t)
		} else if err := inline(m, t); err != nil {
			return err
		}
	}

	n := 0
	fresh := func(hint string) string {
		n++
		return fmt.Sprintf("%s/%d", hint, n)
	}
	before := proto.Clone(m.Proto)
	if err := opset.Raise(m.Proto, to, fresh); err != nil {
		if !proto.Equal(before, m.Proto) {
			return fmt.Errorf("the model changed, and yet: %w", err)
		}
		return err
	}

	for _, t := range large {
		if err := inline(m, t); err != nil {
			return err
		}
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	if err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

// inline makes the content of a tensor of the model part of the structure.
func inline(m *modelfile.Model, t *onnxpb.TensorProto) error {
	if err := m.Inline(t, t); err != nil {
		return err
	}
	t.Payload = nil
	if t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		t.DataLocation, t.ExternalData = nil, nil
	}
	return nil
}
