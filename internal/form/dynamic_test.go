package form_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// A dynamic weight has the same bytes for any tiles, also if codes are stored transposed.
func TestDynamicInTiles(t *testing.T) {
	node := modeltest.Node
	nodes := modeltest.Nodes{
		node("LSTM", "l", "x w r", modeltest.IntAttr("hidden_size", 5)), node("MatMul", "m", "x p"),
		node("Gemm", "g", "x q", modeltest.IntAttr("transB", 1)), node("Conv", "c", "x k"), node("Gather", "y", "e i"),
	}
	tensors := []*onnxpb.TensorProto{
		modeltest.Floats("w", 2, 20, 7), modeltest.Floats("r", 2, 20, 5), modeltest.Floats("p", 2, 7, 9),
		modeltest.Floats("q", 9, 7), modeltest.Floats("k", 4, 5, 3), modeltest.Floats("e", 30, 4),
	}
	in := modeltest.Write(t, modeltest.Model(tensors, nodes))
	for _, block := range []int{0, spec.PerChannel, spec.PerTensor} {
		opts := onnxq.Options{Activations: spec.Dynamic, Block: block, Ops: []string{"all"}}
		var want []byte
		for _, limit := range []int64{modeltest.LargestTile, 1, 8, 23, 64} {
			t.Run(fmt.Sprintf("%s/limit %d", spec.BlockName(block), limit), func(t *testing.T) {
				r, out := modeltest.ConvertInTiles(t, modeltest.Open(t, in), opts, limit)
				for _, tensor := range r.Plan.Tensors {
					if tensor.Decision != onnxq.Quantize || tensor.Note != "" {
						t.Errorf("%s: %s %s", tensor.Name, tensor.Reason, tensor.Note)
					}
				}
				got, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Error("the bytes depend on tiles")
				}
			})
		}
	}
}

// A note says why weights are decoded although operators should compute with codes.
func TestNotDynamic(t *testing.T) {
	node := modeltest.Node
	for _, c := range []struct {
		nodes modeltest.Nodes
		typ   *onnxpb.TensorProto
		note  string
	}{
		{modeltest.Nodes{node("MatMul", "y", "w x")}, modeltest.Floats("w", 8, 8), "MatMulInteger takes a matrix as the second factor"},
		{modeltest.Nodes{node("MatMul", "y", "x w")}, modeltest.Floats("w", 64), "MatMulInteger takes a matrix as the second factor"},
		{modeltest.Nodes{node("Gemm", "y", "x w", modeltest.IntAttr("transA", 1))}, modeltest.Floats("w", 8, 8), "Gemm has transA, alpha or beta"},
		{modeltest.Nodes{node("GRU", "y", "x w w")}, modeltest.Floats("w", 1, 24, 8), "no operator on codes replaces GRU"},
		{modeltest.Nodes{node("LSTM", "y", "x w x")}, modeltest.Floats("w", 1, 32, 8), `the other weight of LSTM node "y" is not quantized alike`},
		{modeltest.Nodes{node("MatMul", "m", "x w"), node("Gemm", "g", "x w", modeltest.IntAttr("transB", 1)), node("Add", "y", "m g")}, modeltest.Floats("w", 8, 8), "its readers take it in two orders"},
		{modeltest.Nodes{node("MatMul", "m", "x w"), node("Conv", "y", "m w")}, modeltest.Floats("w", 4, 4, 4), "it is read by MatMul:1 and by Conv:1"},
		{modeltest.Nodes{node("Reshape", "v", "w s"), node("MatMul", "y", "x v")}, modeltest.Floats("w", 4, 16), "other nodes lie between it and MatMul:1"},
	} {
		tensors := []*onnxpb.TensorProto{c.typ, modeltest.Integers("s", 8, 8)}
		p, err := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, c.nodes))).Plan(onnxq.Options{Activations: spec.Dynamic, Ops: []string{"all"}, AllowFallback: true})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.Tensors[0].Note, "weights only, one scale per channel: "+c.note; got != want {
			t.Errorf("%s: %q, want %q (%s)", c.nodes[0].GetOpType(), got, want, p.Tensors[0].Reason)
		}
	}
}
