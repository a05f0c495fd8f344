package evaluate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/modeltest"
)

func TestBudget(t *testing.T) {
	shape := func(dims ...int64) *onnxpb.TensorProto {
		raw := []byte{}
		for _, d := range dims {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(d))
		}
		return &onnxpb.TensorProto{Name: new("shape"), DataType: new(int32(onnxpb.TensorProto_INT64)), Dims: []int64{int64(len(dims))}, RawData: raw}
	}
	chain := func(op string, n int) (nodes []*onnxpb.NodeProto) {
		last := "x"
		for i := range n {
			made := fmt.Sprint("t", i)
			nodes, last = append(nodes, modeltest.Node(op, made, last)), made
		}
		return append(nodes, modeltest.Node("Identity", "y", last))
	}
	for _, c := range []struct {
		name   string
		tensor *onnxpb.TensorProto
		nodes  []*onnxpb.NodeProto
		says   string
	}{
		{"small", shape(16, 16), []*onnxpb.NodeProto{modeltest.Node("Expand", "y", "x shape")}, ""},
		{"nodes", shape(1), chain("Relu", 1000), ""},
		{"memory", shape(8192, 8000), []*onnxpb.NodeProto{modeltest.Node("Expand", "y", "x shape")}, "1000 MiB of memory, 96 MiB are allowed"},
		{"broadcast", shape(8192, 1), []*onnxpb.NodeProto{modeltest.Node("Expand", "a", "x shape"), modeltest.Node("Transpose", "b", "a"), modeltest.Node("Add", "y", "a b")}, "of memory"},
		{"product", shape(2000, 2000), []*onnxpb.NodeProto{modeltest.Node("Expand", "a", "x shape"), modeltest.Node("MatMul", "y", "a a")}, "too long"},
		{"very many nodes", shape(1), chain("Relu", 60_000), "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{c.tensor}, c.nodes))
			in := &execute.Tensor{Name: "x", DType: 1, Dims: []int64{1, 1}, Data: make([]byte, 4)}
			start := time.Now()
			_, err := Bounded.Run(t.Context(), path, []*execute.Tensor{in})
			if errors.Is(err, ErrBudget) != (c.says != "") || c.says == "" && err != nil || c.says != "" && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error %v after %v, want %q", filepath.Base(path), err, time.Since(start), c.says)
			}
		})
	}
}

// What a loop collects counts, also in the engine without a budget of work.
func TestLoopMemory(t *testing.T) {
	body := &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{{Name: new("n")}, {Name: new("go")}},
		Node:   []*onnxpb.NodeProto{modeltest.Node("Identity", "on", "go"), modeltest.Node("Expand", "big", "x shape")},
		Output: []*onnxpb.ValueInfoProto{{Name: new("on")}, {Name: new("big")}},
	}
	loop := modeltest.Node("Loop", "y", "_ _")
	loop.Attribute = []*onnxpb.AttributeProto{{Name: new("body"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: body}}
	raw := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 1024), 1024)
	shape := &onnxpb.TensorProto{Name: new("shape"), DataType: new(int32(onnxpb.TensorProto_INT64)), Dims: []int64{2}, RawData: raw}
	path := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{shape}, []*onnxpb.NodeProto{loop}))
	in := &execute.Tensor{Name: "x", DType: 1, Dims: []int64{1, 1}, Data: make([]byte, 4)}
	if _, err := Go.Run(t.Context(), path, []*execute.Tensor{in}); !errors.Is(err, execute.ErrUnsupported) || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("error %v", err)
	}
	if _, err := Bounded.Run(t.Context(), path, []*execute.Tensor{in}); !errors.Is(err, ErrBudget) {
		t.Errorf("error %v", err)
	}
}
