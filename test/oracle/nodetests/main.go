// Command nodetests runs onnx's own node tests in the pure Go engine. It prints a line for each: its name, right,
// wrong or refused, and why.
//
//	nodetests FOLDER
//
// FOLDER has a folder for each test, as test_nodes.py writes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
)

// values reads the values kind_0, kind_1, … of a test. A value is a tensor in a file, a sequence in a folder, or
// nothing in a file "none".
func values(folder, kind string) (list []*execute.Tensor, err error) {
	for i := 0; ; i++ {
		path := filepath.Join(folder, fmt.Sprintf("%s_%d", kind, i))
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			items, err := values(path, "item")
			if err != nil {
				return nil, err
			}
			list = append(list, &execute.Tensor{List: append([]*execute.Tensor{}, items...)})
		default:
			if _, err := os.Stat(path + ".none"); err == nil {
				list = append(list, nil)
				continue
			}
			if _, err := os.Stat(path + ".pb"); err != nil {
				return list, nil
			}
			t, err := execute.ReadTensorProto(path + ".pb")
			if err != nil {
				return nil, err
			}
			list = append(list, t)
		}
	}
}

// differ says how a value differs from the expected one, or "".
func differ(got, want *execute.Tensor, relative, absolute float64) string {
	switch {
	case got == nil || want == nil:
		if got != want {
			return "one is absent"
		}
		return ""
	case got.List != nil || want.List != nil:
		if len(got.List) != len(want.List) {
			return fmt.Sprintf("%d elements, want %d", len(got.List), len(want.List))
		}
		for i := range got.List {
			if d := differ(got.List[i], want.List[i], relative, absolute); d != "" {
				return d
			}
		}
		return ""
	case got.DType != want.DType || !slices.Equal(got.Dims, want.Dims):
		return fmt.Sprintf("%v %v, want %v %v", got.DType, got.Dims, want.DType, want.Dims)
	case !got.IsFloat():
		if !slices.Equal(got.Data, want.Data) || !slices.Equal(got.Text, want.Text) {
			return fmt.Sprintf("%.40v %.200v, want %.40v %.200v", got.Data, got.Text, want.Data, want.Text)
		}
		return ""
	}
	x, y := got.Float64s(), want.Float64s()
	switch got.DType { // two units in the last place: steps that round in another order
	case dtype.Float16:
		relative = max(relative, 1./512)
	case dtype.BFloat16:
		relative = max(relative, 1./64)
	}
	for i := range x {
		if d := math.Abs(x[i] - y[i]); !(d <= absolute+relative*math.Abs(y[i])) && x[i] != y[i] && (x[i] == x[i] || y[i] == y[i]) {
			return fmt.Sprintf("element %d is %v, want %v", i, x[i], y[i])
		}
	}
	return ""
}

// verdict runs a test.
func verdict(folder string) (string, error) {
	m, err := modelfile.Open(filepath.Join(folder, "model.onnx"))
	if err != nil {
		return "", err
	}
	defer m.Close()
	var relative, absolute float64
	text, err := os.ReadFile(filepath.Join(folder, "tolerance"))
	if err != nil {
		return "", err
	}
	if _, err := fmt.Sscan(string(text), &relative, &absolute); err != nil {
		return "", err
	}
	in, err := values(folder, "input")
	if err != nil {
		return "", err
	}
	for i, t := range in {
		if t == nil {
			t = &execute.Tensor{}
			in[i] = t
		}
		t.Name = m.Proto.Graph.Input[i].GetName()
	}
	in = slices.DeleteFunc(in, func(t *execute.Tensor) bool { return t.DType == 0 && t.List == nil })
	want, err := values(folder, "output")
	if err != nil {
		return "", err
	}
	got, err := evaluate.Go.Run(context.Background(), filepath.Join(folder, "model.onnx"), in)
	switch {
	case errors.Is(err, execute.ErrUnsupported):
		return "refused " + err.Error(), nil
	case err != nil:
		return "wrong " + err.Error(), nil
	}
	for i := range want {
		if d := differ(got[i], want[i], relative, absolute); d != "" {
			return fmt.Sprintf("wrong output %d: %s", i, d), nil
		}
	}
	return "right", nil
}

func main() {
	folders, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	for _, folder := range folders {
		var line string
		if line, err = verdict(folder); err != nil {
			break
		}
		fmt.Println(filepath.Base(folder), strings.ReplaceAll(line, "\n", " "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
