package onnxq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// example writes a test model and returns its path and one for an output.
func example(kind string) (in, out string, remove func()) {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	m, err := testmodels.Build(kind, 1)
	if err != nil {
		log.Fatal(err)
	}
	in = filepath.Join(folder, "in.onnx")
	if err := m.Write(in); err != nil {
		log.Fatal(err)
	}
	return in, filepath.Join(folder, "out.onnx"), func() { os.RemoveAll(folder) }
}

func ExampleConvert() {
	in, out, remove := example("mlp")
	defer remove()

	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: 4, Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Printf("%s %v %s: %d to %d bytes\n", t.Name, t.Shape, t.Format, t.Bytes, t.OutBytes)
	}
	// Output:
	// w0 [64 96] int4: 24576 to 3840 bytes
	// w1 [96 64] int4: 24576 to 3840 bytes
	// w2 [64 16] int4: 4096 to 640 bytes
}

func ExampleModel_Plan() {
	in, _, remove := example("embedding")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	plan, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range plan.Tensors {
		fmt.Println(t.Name, t.Decision, t.Reason)
	}
	// Output:
	// table keep operator not selected: Gather
	// head quantize
}

func ExampleModel_Analyze() {
	in, out, remove := example("mlp")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	candidates := []spec.Candidate{{Format: spec.Int4, Block: 32}, {Format: spec.Int8, Block: 32}}
	analysis, err := m.Analyze(context.Background(), onnxq.AnalyzeOptions{Candidates: candidates, MaxError: 0.06})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range analysis.Weights {
		fmt.Println(w.Name, w.Recommended)
	}
	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Precision: analysis.Precision}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// w0 int4:32
	// w1 int8:32
	// w2 int8:32
}

func ExampleNewPrecision() {
	bits, format := 8, spec.NF4
	p, err := rules.NewPrecision(
		rules.PrecisionEntry{Pattern: "*experts*", Override: spec.Override{Format: &format}},
		rules.PrecisionEntry{Pattern: rules.PatternOf("head[0]"), Override: spec.Override{Bits: &bits}},
	)
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	// Output: {"*experts*":{"format":"nf4"},"head\\[0]":{"bits":8}}
}

func ExampleParsePrecision() {
	in, out, remove := example("mlp")
	defer remove()

	precision, err := rules.ParsePrecision([]byte(`{"w*": 4, "w2": {"bits": 8, "block": -1}}`))
	if err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, Precision: precision})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Println(t.Name, t.Format, t.Block)
	}
	// Output:
	// w0 int4 32
	// w1 int4 32
	// w2 int8 -1
}

func ExampleDiff() {
	in, out, remove := example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Include: []string{"w0"}}); err != nil {
		log.Fatal(err)
	}
	a, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := onnxq.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	d, err := onnxq.Diff(ctx, a, b)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range d.Changes {
		fmt.Println(c.Kind, c.Where)
	}
	// Output:
	// added node "w0" (DequantizeLinear)
	// removed initializer "w0"
	// added initializer "w0_i4"
	// added initializer "w0_scale"
}

func ExampleModel_QuantizedWeights() {
	in, out, remove := example("mlp")
	defer remove()

	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, Style: spec.NBits}); err != nil {
		log.Fatal(err)
	}
	m, err := onnxq.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, w := range m.QuantizedWeights() {
		row := make([]float32, w.Shape[1])
		if err := w.Read(row, 0); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w, "for", w.Consumers)
	}
	// Output:
	// "w0_i4" [96 64] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
	// "w1_i4" [64 96] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
	// "w2_i4" [16 64] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
}

func ExampleDequantize() {
	in, out, remove := example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32}); err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Dequantize(ctx, out, out+".float", onnxq.RewriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range report.Weights {
		fmt.Printf("%s: %s to %s, %d to %d bytes\n", w.Name, w.CodeType, w.NewForm, w.Bytes, w.OutBytes)
	}
	// Output:
	// w0: INT4 to float, 3840 to 24576 bytes
	// w1: INT4 to float, 3840 to 24576 bytes
	// w2: INT4 to float, 640 to 4096 bytes
}

func ExampleRestyle() {
	in, out, remove := example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32, Style: spec.NBits}); err != nil {
		log.Fatal(err)
	}
	report, err := onnxq.Restyle(ctx, out, out+".dq", spec.DQ, onnxq.RewriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range report.Weights {
		fmt.Printf("%s: %s to %s\n", w.Became, w.Form, w.NewForm)
	}
	// Output:
	// w0: MatMulNBits to DequantizeLinear
	// w1: MatMulNBits to DequantizeLinear
	// w2: MatMulNBits to DequantizeLinear
}

// The weights of a model become a GGUF file, and weights of one become the model's.
func ExampleModel_PlanGGUF() {
	in, out, remove := example("mlp")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	plan, err := m.PlanGGUF(onnxq.GGUFOptions{Mix: "Q8_0", TensorTypes: []onnxq.TypeRule{{Pattern: "w1", Type: "Q4_0"}}})
	if err != nil {
		log.Fatal(err)
	}
	report, err := plan.Write(context.Background(), out)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Println(t.Name, t.Shape, "as", t.Type, t.FileShape)
	}

	from, err := m.ReadWeights(out, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(from.Tensors), "of", from.Of)
	// Output:
	// w0 [64 96] as Q8_0 [96 64]
	// b0 [96] as F32 [96]
	// w1 [96 64] as Q4_0 [64 96]
	// b1 [64] as F32 [64]
	// w2 [64 16] as Q8_0 [16 64]
	// b2 [16] as F32 [16]
	// 6 of 6
}

func ExampleParseNames() {
	names, err := rules.ParseNames([]byte(`{"model.layers.*.mlp.up_proj.weight": "blk.*.ffn_up.weight"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(names.For("model.layers.7.mlp.up_proj.weight"))
	fmt.Println(names.For("lm_head.weight"))
	// Output:
	// blk.7.ffn_up.weight true
	// lm_head.weight true
}

// What a model holds, and what becomes of it.
func ExampleModel_Inspect() {
	in, _, remove := example("tied")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	found := m.Inspect(onnxq.Options{Target: spec.ORT, Block: 32, Ops: []string{"Gather", "Gemm"}})
	fmt.Println(found.Nodes, "nodes, opset", found.Opsets[0].Version)
	for _, t := range found.Types {
		fmt.Println(t.Tensors, t.DType, t.Bytes)
	}
	for _, t := range found.Plan.Tensors {
		fmt.Println(t.Name, t.Shape, t.Decision, t.Form)
		fmt.Println(t.Note)
	}
	// Output:
	// 3 nodes, opset 21
	// 1 FLOAT 12800
	// table [100 32] quantize MatMulNBits and GatherBlockQuantized
	// ONNX Runtime does not fuse its DequantizeLinear: it has several readers
}
