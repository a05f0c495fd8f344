package verify_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// pair writes a test model and makes a quantized one of it.
func pair(folder, kind string, opts onnxq.Options) (in, out string, err error) {
	in, out = filepath.Join(folder, kind+".onnx"), filepath.Join(folder, kind+"-q.onnx")
	m, err := testmodels.Build(kind, 1)
	if err == nil {
		err = m.Write(in)
	}
	if err == nil {
		opts.AllowFallback = true
		_, err = onnxq.Convert(context.Background(), in, out, opts)
	}
	return in, out, err
}

func ExampleModels() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	in, out, err := pair(folder, "mlp", onnxq.Options{Bits: 8, Block: 32})
	if err != nil {
		log.Fatal(err)
	}

	least := 30.0
	report, err := verify.Models(context.Background(), in, out, verify.Options{MinSQNR: &least})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("passed:", report.Passed)
	for _, w := range report.Weights {
		fmt.Println(w.Name, w.Form, w.CodeType, w.SQNR > 40)
	}
	fmt.Println(report.Execution.Engine, report.Execution.Outputs[0].Name)
	// Output:
	// passed: true
	// w0 DequantizeLinear INT8 true
	// w1 DequantizeLinear INT8 true
	// w2 DequantizeLinear INT8 true
	// pure Go y
}

// Every test model runs in pure Go, quantized in any style, and its outputs stay
// near those of the float model.
func TestTestModels(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		for _, opts := range []onnxq.Options{{Bits: 8, Block: 32}, {Bits: 8, Block: 32, Style: spec.NBits}} {
			opts.Ops = reach.KnownOps
			in, out, err := pair(t.TempDir(), kind.Name, opts)
			if err != nil {
				t.Fatal(err)
			}
			r, err := verify.Models(context.Background(), in, out, verify.Options{Engine: verify.Go})
			if err != nil {
				t.Errorf("%s: %v", kind.Name, err)
				continue
			}
			if kind.Name == "nan" { // every output depends on the NaN
				if r.Passed || r.Execution.Compared {
					t.Errorf("%s: passed: %v, compared: %v", kind.Name, r.Passed, r.Execution.Compared)
				}
				continue
			}
			if !r.Passed {
				t.Errorf("%s: %q", kind.Name, r.Failures)
			}
			for _, o := range r.Execution.Outputs {
				if o.SQNR < 30 || o.Cosine < 0.999 {
					t.Errorf("%s %s: %+v", kind.Name, opts.Style, o)
				}
			}
			if len(r.Execution.Outputs) == 0 {
				t.Errorf("%s: no outputs", kind.Name)
			}
		}
	}
}

// The small language model runs in pure Go too.
func TestTinyGPT(t *testing.T) {
	in, out := "../../testmodels/tinygpt/model.onnx", filepath.Join(t.TempDir(), "out.onnx")
	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: 8, Block: 32}); err != nil {
		t.Fatal(err)
	}
	r, err := verify.Models(context.Background(), in, out, verify.Options{Engine: verify.Go, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Passed || len(r.Execution.Outputs) != 1 || r.Execution.Outputs[0].SQNR < 30 || len(r.Weights) < 17 {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotRun(t *testing.T) {
	in, out, err := pair(t.TempDir(), "mlp", onnxq.Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	missing := filepath.Join(t.TempDir(), "missing.so")

	r, err := verify.Models(ctx, in, out, verify.Options{Engine: verify.None})
	if err != nil || !r.Passed || r.Execution.Compared || len(r.Execution.Reasons) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = verify.Models(ctx, in, out, verify.Options{Engine: verify.ORT, ORTLibrary: missing})
	if err != nil || r.Passed || r.Execution.Compared || !slices.ContainsFunc(r.Failures, func(f string) bool { return strings.Contains(f, "were not compared") }) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := verify.Models(ctx, in, out, verify.Options{Inputs: []string{missing}}); err == nil {
		t.Error("missing inputs are no error")
	}
	if _, err := verify.Models(ctx, in, missing, verify.Options{}); err == nil {
		t.Error("a missing model is no error")
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := verify.Models(stopped, in, out, verify.Options{}); err == nil {
		t.Error("it does not stop")
	}
}

// Spelled "ai.onnx" or "", the standard's domain is one.
func TestDomainOfTheStandard(t *testing.T) {
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, modeltest.Nodes{modeltest.Node("ai.onnx.MatMul", "h", "x w"), modeltest.Node("Relu", "y", "h")})
	m.Proto.OpsetImport[0].Domain = new("ai.onnx")
	in, out := modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})
	r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.None})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Passed || len(r.Weights) != 1 {
		t.Errorf("%d weights, %q", len(r.Weights), r.Failures)
	}
}

// A float model may have codes of activations behind a Reshape. Both models lose these.
func TestCodesThatAreMoved(t *testing.T) {
	node := modeltest.Node
	scale := modeltest.Floats("s")
	scale.FloatData[0] = 0.5
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32), scale},
		modeltest.Nodes{node("QuantizeLinear", "q", "x s"), node("Flatten", "moved", "q"), node("DequantizeLinear", "v", "moved s"), node("MatMul", "y", "v w")})
	in, out := modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})
	r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.None})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Passed || len(r.Weights) != 1 || r.Swapped {
		t.Errorf("%d weights, %q", len(r.Weights), r.Failures)
	}
}

// Random inputs get sizes that the model takes.
func TestSizesOfRandomInputs(t *testing.T) {
	node, ints := modeltest.Node, modeltest.Integers
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32), ints("start", 70), ints("end", 134), ints("axis", 1), ints("one", 1, 32)},
		modeltest.Nodes{node("Slice", "s", "x start end axis"), node("MatMul", "q", "s w"), node("Reshape", "y", "q one")})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	shape := &onnxpb.TensorShapeProto{}
	for _, name := range []string{"batch", "samples"} {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: name}})
	}
	m.Proto.Graph.Input[0].Type.GetTensorType().Shape = shape
	in, out := modeltest.Write(t, m), filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{Block: 32})
	r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go})
	if err != nil || !r.Passed || r.Execution.Sizes != "batch=1, samples=512" || r.Execution.Inputs[0].Dims[1] != 512 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go, Dims: map[string]int64{"samples": 9}})
	if want := "the sizes were batch=2, samples=9, --dim"; err != nil || r.Passed || !strings.Contains(strings.Join(r.Execution.Reasons, ""), want) {
		t.Errorf("%+v, %v, want %s", r, err, want)
	}
}

// Each phase tells how much of it is done.
func TestProgress(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	if err := testmodels.MLP(1, 600, 600, 600).Write(in); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	modeltest.Convert(t, in, out, onnxq.Options{})
	done := map[string]int64{}
	opts := verify.Options{Engine: verify.Go, Progress: func(stage string, n, total int64) {
		if n < done[stage] || n > total {
			t.Errorf("%s: %d of %d after %d", stage, n, total, done[stage])
		}
		done[stage] = n
	}}
	if _, err := verify.Models(t.Context(), in, out, opts); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"decoding the weights", "comparing the weights", "running the float model in pure Go", "running the dequantized model in pure Go"} {
		if done[stage] == 0 {
			t.Errorf("%s: no progress in %v", stage, done)
		}
	}
}
