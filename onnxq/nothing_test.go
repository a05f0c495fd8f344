package onnxq_test

import (
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
)

// Where nothing is quantized, the warning says why.
func TestNothingIsQuantized(t *testing.T) {
	one := modeltest.Tensors{modeltest.Floats("w", 64, 32)}
	product := modeltest.Node("MatMul", "y", "x w")
	done := filepath.Join(t.TempDir(), "done.onnx")
	modeltest.Convert(t, modeltest.Write(t, modeltest.Model(one, modeltest.Nodes{product})), done, onnxq.Options{Block: 32})
	some := filepath.Join(t.TempDir(), "some.onnx")
	withTable := append(modeltest.Tensors{modeltest.Floats("t", 64, 32)}, one...)
	modeltest.Convert(t, modeltest.Write(t, modeltest.Model(withTable, modeltest.Nodes{modeltest.Node("Gather", "x2", "t i"), product})), some, onnxq.Options{Block: 32})

	// Outputs of the graph cannot be quantized.
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32), modeltest.Floats("v", 32, 8)}, modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("MatMul", "y", "h v")})
	m.Proto.Graph.Output = append(m.Proto.Graph.Output, &onnxpb.ValueInfoProto{Name: new("w")}, &onnxpb.ValueInfoProto{Name: new("v")})
	obstructed := modeltest.Write(t, m)

	for name, c := range map[string]struct {
		path string
		opts onnxq.Options
		want string
	}{
		"none":       {modeltest.Write(t, modeltest.Model(nil, modeltest.Nodes{modeltest.Node("Relu", "y", "x")})), onnxq.Options{}, "no weight was selected"},
		"excluded":   {modeltest.Write(t, modeltest.Model(one, modeltest.Nodes{product})), onnxq.Options{Exclude: []string{"w"}}, "no weight was selected"},
		"operator":   {modeltest.Write(t, modeltest.Model(one, modeltest.Nodes{product})), onnxq.Options{Ops: []string{"Conv"}}, "no weight was selected; --ops all selects those of more operators"},
		"done":       {done, onnxq.Options{}, "all weights are quantized already"},
		"some done":  {some, onnxq.Options{}, "no weight was selected, and some are quantized already"},
		"obstructed": {obstructed, onnxq.Options{}, `of 2 weights selected none can be quantized; the largest, "w": graph output`},
		"one":        {obstructed, onnxq.Options{Include: []string{"v"}}, `"v" was selected but cannot be quantized: graph output`},
	} {
		p, err := modeltest.Open(t, c.path).Plan(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if want := "nothing is quantized: " + c.want; !slices.Contains(p.Warnings, want) {
			t.Errorf("%s: warnings %q, want %q", name, p.Warnings, want)
		}
	}
}
