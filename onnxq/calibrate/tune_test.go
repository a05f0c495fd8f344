package calibrate_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Scales are tuned for the outputs on held-out samples. Codes stay.
func TestTune(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(testmodels.MLP(1, 64, 64, 64, 32).Write(in), modeltest.WriteSamples(samples, 60, 64)); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []onnxq.Options{
		{Block: 32, Algorithm: spec.GPTQ},
		{Block: 32, Algorithm: spec.GPTQ, ScaleType: spec.ScaleFloat16},
		{Format: spec.NF4, Block: 32, Algorithm: spec.GPTQ, Target: spec.ORT},
	} {
		var outputs []*onnxq.Model
		var first *onnxpb.ModelProto
		for _, steps := range []int{0, 24} {
			data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
			if err := data.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(folder, fmt.Sprintf("out%d.onnx", steps))
			o := opts
			o.Calibration, o.Tune = data, steps
			r, err := onnxq.Convert(t.Context(), in, out, o)
			if err != nil {
				t.Fatal(err)
			}
			if tuned := r.Calibration.Tuned; (tuned != nil) != (steps > 0) || tuned != nil && (tuned.After >= tuned.Before || tuned.Layers != 3 || tuned.Loss != "squared error") {
				t.Errorf("%s: %+v", opts.Algorithm, tuned)
			}
			outputs = append(outputs, modeltest.Open(t, out))
			if first == nil {
				first = modeltest.Read(t, out)
			}
		}
		codes, scales := 0, 0
		for _, tensor := range first.Graph.Initializer {
			_, before := modeltest.Tensor(t, outputs[0], tensor.GetName())
			_, after := modeltest.Tensor(t, outputs[1], tensor.GetName())
			switch same := bytes.Equal(before, after); {
			case strings.HasSuffix(tensor.GetName(), "_scale"):
				if scales++; same {
					t.Errorf("%s has not changed", tensor.GetName())
				}
			case !same:
				t.Errorf("%s has changed", tensor.GetName())
			default:
				codes++
			}
		}
		if codes == 0 || scales != 3 {
			t.Errorf("%s: %d other tensors, %d scales", opts.Algorithm, codes, scales)
		}
	}
}

// Without gradients, or with few samples, scales stay and a warning says why.
func TestTuneFallsBack(t *testing.T) {
	folder := t.TempDir()
	samples := filepath.Join(folder, "x.npy")
	convert := func(in string, n int) *onnxq.Report {
		if err := modeltest.WriteSamples(samples, n, 64); err != nil {
			t.Fatal(err)
		}
		data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
		if err := data.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), onnxq.Options{Block: 32, Algorithm: spec.GPTQ, Calibration: data, Tune: 8})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	in := filepath.Join(folder, "in.onnx")
	if err := testmodels.MLP(1, 64, 64).Write(in); err != nil {
		t.Fatal(err)
	}
	weights := modeltest.Tensors{modeltest.Floats("w", 64, 64)}
	m := modeltest.Model(weights, modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("Einsum", "y", "h", modeltest.StringAttr("equation", "ij->ji"))})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	classes := modeltest.Model(weights, modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("ArgMax", "y", "h")})
	classes.Proto.Graph.Input = classes.Proto.Graph.Input[:1]
	classes.Proto.Graph.Output[0].Type.GetTensorType().ElemType = new(int32(dtype.Int64))
	for _, test := range []struct {
		r    *onnxq.Report
		want string
	}{
		{convert(in, 9), "there are 9 samples"},
		{convert(modeltest.Write(t, m), 20), "the gradient of operator Einsum"},
		{convert(modeltest.Write(t, classes), 20), "no floating-point output depends on the weights"},
	} {
		if tuned := test.r.Calibration.Tuned; tuned == nil || !strings.Contains(tuned.Why, test.want) || !strings.Contains(test.r.Plan.String(), "scales are not tuned: ") {
			t.Errorf("%+v, warnings %q", tuned, test.r.Plan.Warnings)
		}
	}
}
