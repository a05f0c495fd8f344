package onnxq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Facts that many weights have in common are one warning.
func TestWarnings(t *testing.T) {
	all, err := rules.ParsePrecision([]byte(`{"*": {"bits": 8}}`))
	if err != nil {
		t.Fatal(err)
	}
	one := modeltest.Tensors{modeltest.Floats("w", 64, 32)}
	product := modeltest.Node("MatMul", "y", "x w")
	biases := func(n int) *onnxq.Model {
		tensors, nodes := slices.Clone(one), modeltest.Nodes{modeltest.Node("MatMul", "h0", "x w")}
		for i := range n {
			tensors = append(tensors, modeltest.Floats(fmt.Sprintf("b%d", i), 32))
			nodes = append(nodes, modeltest.Node("Add", fmt.Sprintf("h%d", i+1), fmt.Sprintf("h%d b%d", i, i)))
		}
		nodes = append(nodes, modeltest.Node("Relu", "y", fmt.Sprintf("h%d", n)))
		return modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, nodes)))
	}
	path := modeltest.Write(t, modeltest.Model(one, modeltest.Nodes{product}))
	plain := modeltest.Open(t, path)
	mlpPath := modeltest.Build(t, "mlp")
	mlp := modeltest.Open(t, mlpPath)
	gptq, err := rules.ParsePrecision([]byte(`{"w0": {"algorithm": "gptq"}}`))
	if err != nil {
		t.Fatal(err)
	}
	function := modeltest.Function("f", "x v", "y", modeltest.Node("MatMul", "y", "x v"))
	function.OpsetImport[0].Version = new(int64(16)) // the model has 17
	calledPath := modeltest.Write(t, modeltest.Model(one, modeltest.Nodes{modeltest.Node("local.f", "y", "x w")}, function))
	called := modeltest.Open(t, calledPath)
	for name, c := range map[string]struct {
		model *onnxq.Model
		opts  onnxq.Options
		want  []string
	}{
		"few biases":     {biases(2), onnxq.Options{Precision: all}, []string{`"b0" stays in float though precision_info names it: read by Add:1`, `"b1" stays in float though precision_info names it: read by Add:1`}},
		"many biases":    {biases(6), onnxq.Options{Precision: all}, []string{`6 tensors stay in float though precision_info names them: "b0", "b1", "b2", "b3", … (--verbose says why)`}},
		"float zeros":    {plain, onnxq.Options{Block: 32, ZeroPoint: true, Style: spec.NBits, Algorithm: spec.HQQ}, []string{"1 weight gets float zero points: ONNX Runtime then takes 20 to 100 times as long for a row on a CPU; other algorithms have integer zero points"}},
		"for the web":    {plain, onnxq.Options{Block: 32, ZeroPoint: true, Target: spec.ORTWeb, Algorithm: spec.HQQ}, nil},
		"in a function":  {called, onnxq.Options{Block: 32, Algorithm: spec.GPTQ, Calibration: calibrate.New(calledPath, calibrate.Options{})}, []string{"no weight is calibrated, so the data are not used; --dry-run --verbose says why"}},
		"two algorithms": {mlp, onnxq.Options{Block: 32, Algorithm: spec.Best, Precision: gptq, Calibration: calibrate.New(mlpPath, calibrate.Options{})}, []string{"1 weight is calibrated by algorithm best, not gptq: one calibration cannot run both"}},
	} {
		c.opts.AllowFallback = true
		p, err := c.model.Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.DeleteFunc(slices.Clone(p.Warnings), func(w string) bool { return strings.Contains(w, "larger than the input") })
		if !slices.Equal(found, c.want) {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
	}
}

// Calibration that no weight has the memory for is an error.
func TestTooLittleMemory(t *testing.T) {
	path := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
	opts := onnxq.Options{Block: 32, Algorithm: spec.GPTQ, Calibration: calibrate.New(path, calibrate.Options{}), Memory: 16 << 10}
	_, err := modeltest.Open(t, path).Plan(opts)
	if !errors.Is(err, onnxq.ErrMemory) || !errors.Is(err, onnxq.ErrFallback) || !strings.Contains(err.Error(), "--memory of 1 MiB") {
		t.Errorf("%v", err)
	}
	opts.AllowFallback = true
	if p, err := modeltest.Open(t, path).Plan(opts); err != nil || len(p.Fallbacks) != 1 || p.Fallbacks[0].Got != "mse" {
		t.Errorf("allowed: %v", err)
	}
}

// Block sizes that MatMulNBits does not support are refused before anything is read.
func TestNBitsBlock(t *testing.T) {
	for block, ok := range map[int]bool{0: true, -1: true, 8: false, 16: true, 48: false, 128: true, 512: true} {
		err := onnxq.Options{Style: spec.NBits, Block: block}.Check()
		if want := fmt.Sprintf("style nbits takes block sizes that are powers of two, at least 16: not %d", block); (err == nil) != ok || err != nil && err.Error() != want {
			t.Errorf("block %d: %v", block, err)
		}
	}
}
