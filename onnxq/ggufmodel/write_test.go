package ggufmodel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/testmodels"
)

// reader makes a model in which an operator reads a weight w of that type and shape,
// of random values, and returns it with the values.
func reader(op string, typ dtype.DType, shape ...int64) (*testmodels.Model, []float32) {
	n, _ := dtype.Elements(shape)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(1<<11)-1<<10) / (1 << 10) // exact in any float16
		if typ == dtype.BFloat16 {
			x[i] = float32(r.IntN(255)-127) / 128
		}
	}
	content := make([]byte, n*typ.Bits()/8)
	typ.Encode(content, x)
	w := &onnxpb.TensorProto{Name: new("w"), DataType: new(int32(typ)), Dims: shape, RawData: content}
	node := &onnxpb.NodeProto{OpType: &op, Name: new("node"), Input: []string{"x", "w"}, Output: []string{"y"}}
	switch op {
	case "Gather":
		node.Input = []string{"w", "x"}
	case "Gemm":
		node.Attribute = []*onnxpb.AttributeProto{{Name: new("transB"), I: new(int64(1)), Type: onnxpb.AttributeProto_INT.Enum()}}
	}
	value := func(name string) *onnxpb.ValueInfoProto { return &onnxpb.ValueInfoProto{Name: &name} }
	return &testmodels.Model{Proto: &onnxpb.ModelProto{
		IrVersion:   new(int64(8)),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(18))}},
		Graph: &onnxpb.GraphProto{
			Name: new("reader"), Node: []*onnxpb.NodeProto{node}, Initializer: []*onnxpb.TensorProto{w},
			Input: []*onnxpb.ValueInfoProto{value("x")}, Output: []*onnxpb.ValueInfoProto{value("y")},
		},
	}}, x
}

// asGGUF writes the weights of a model and opens the file.
func asGGUF(t testing.TB, m *onnxq.Model, opts ggufmodel.Options) *gguf.File {
	t.Helper()
	p, err := ggufmodel.NewPlan(m, opts)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.gguf")
	if _, err := p.Write(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if f.Size != p.OutBytes {
		t.Errorf("%d bytes were planned, %d written", p.OutBytes, f.Size)
	}
	return f
}

// transposed returns x, [outer, k, inner], as [outer, inner, k].
func transposed(x []float32, outer, k, inner int) []float32 {
	y := make([]float32, len(x))
	for o := range outer {
		for i := range k {
			for c := range inner {
				y[(o*inner+c)*k+i] = x[(o*k+i)*inner+c]
			}
		}
	}
	return y
}

// Weights are stored as rows of what is summed over, whatever the operator, the type
// and the tiles, with the bytes that package ggml gives their rows.
func TestContents(t *testing.T) {
	for _, c := range []struct {
		op              string
		shape, want     []int64
		outer, k, inner int
	}{
		{"MatMul", []int64{512, 40}, []int64{40, 512}, 1, 512, 40},
		{"MatMul", []int64{3, 256, 70}, []int64{3, 70, 256}, 3, 256, 70},
		{"MatMul", []int64{2, 2, 2, 256, 3}, []int64{4, 2, 3, 256}, 8, 256, 3},
		{"MatMul", []int64{256, 1}, []int64{1, 256}, 1, 256, 1},
		{"MatMul", []int64{65536, 2}, []int64{2, 65536}, 1, 65536, 2},
		{"Gemm", []int64{40, 512}, []int64{40, 512}, 40, 512, 1},
		{"Gemm", []int64{2, 65536}, []int64{2, 65536}, 2, 65536, 1},
		{"Gather", []int64{90, 256}, []int64{90, 256}, 90, 256, 1},
	} {
		for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Float64} {
			if typ != dtype.Float32 && c.k > 512 {
				continue // large
			}
			model, x := reader(c.op, typ, c.shape...)
			m := modeltest.Open(t, modeltest.Write(t, model))
			rows := transposed(x, c.outer, c.k, c.inner)
			for _, e := range []*ggml.Encoding{ggml.F32, ggml.Q4_0, ggml.Q6_K, ggml.F16} {
				want := make([]byte, len(rows)/e.Elements*e.Bytes)
				if err := e.Quantize(want, rows, c.k, nil, 2); err != nil {
					t.Fatal(err)
				}
				for _, memory := range []int64{1, 0} {
					name := fmt.Sprintf("%s %v %v as %v", c.op, typ, c.shape, e)
					f := asGGUF(t, m, ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: e.Name}}, Memory: memory, Threads: 3})
					w := f.Tensor("w")
					if w == nil || w.Type != gguf.Type(e.Type) || !slices.Equal(w.Shape, c.want) {
						t.Fatalf("%s: %+v", name, w)
					}
					got := make([]byte, w.Bytes())
					if err := buffer.ReadFull(f.Content(w), got, 0); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s, memory %d: other bytes", name, memory)
					}
				}
			}
		}
	}
}

// Values that a type does not have stop the writing, and leave no file.
func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		value float32
		typ   string
		want  string
	}{
		{float32(math.NaN()), "Q4_0", `tensor "w": it holds NaN or infinity`},
		{70000, "F16", `tensor "w": it holds 70000, more than F16 can`},
		{1e30, "Q4_0", "more than Q4_0 can"},
		{float32(math.NaN()), "F16", ""},
	} {
		model, _ := reader("MatMul", dtype.Float32, 64, 32)
		binary.LittleEndian.PutUint32(model.Proto.Graph.Initializer[0].RawData[400:], math.Float32bits(c.value))
		m := modeltest.Open(t, modeltest.Write(t, model))
		p, err := ggufmodel.NewPlan(m, ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: c.typ}}})
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		_, err = p.Write(context.Background(), filepath.Join(folder, "out.gguf"))
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v as %s: %v, want %q", c.value, c.typ, err, c.want)
		}
		if left := modeltest.List(t, folder); len(left) > 0 {
			t.Errorf("%v as %s leaves %v", c.value, c.typ, left)
		}
	}
}
