package ggufmodel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/testmodels"
)

// What is read back is what the blocks say, rounded to the tensor's type, in the order
// of the model: at once, in parts, and as rows of parts.
func TestSource(t *testing.T) {
	for _, c := range []struct {
		op              string
		shape           []int64
		outer, k, inner int
	}{
		{"MatMul", []int64{2, 512, 37}, 2, 512, 37},
		{"MatMul", []int64{8192, 3}, 1, 8192, 3},
		{"Gemm", []int64{20, 512}, 20, 512, 1},
	} {
		for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Float64} {
			for _, e := range []*ggml.Encoding{ggml.F32, ggml.BF16, ggml.Q4_K} {
				model, x := reader(c.op, typ, c.shape...)
				m := modeltest.Open(t, modeltest.Write(t, model))
				f := asGGUF(t, m, ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: e.Name}}})
				packed := make([]byte, f.Tensor("w").Bytes())
				if err := buffer.ReadFull(f.Content(f.Tensor("w")), packed, 0); err != nil {
					t.Fatal(err)
				}
				decoded := make([]float32, len(x))
				if err := e.Dequantize(decoded, packed, c.k, 1); err != nil {
					t.Fatal(err)
				}
				want := make([]byte, int64(len(x))*typ.Bits()/8)
				typ.Encode(want, transposed(decoded, c.outer, c.inner, c.k))
				name := fmt.Sprintf("%s %v %v as %v", c.op, typ, c.shape, e)

				v := m.Graph().Values[0]
				s, err := ggufmodel.NewSource(f, f.Tensor("w"), m.Graph(), v)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(want))
				if err := buffer.ReadFull(s, got, 0); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: other values at once: %v", name, err)
				}
				r := rand.New(rand.NewPCG(1, 2))
				for range 15 {
					off := r.IntN(len(want))
					n := 1 + r.IntN(min(len(want)-off, 20000))
					part := make([]byte, n)
					if err := buffer.ReadFull(s, part, int64(off)); err != nil || !bytes.Equal(part, want[off:off+n]) {
						t.Fatalf("%s: other values in bytes %d to %d: %v", name, off, off+n, err)
					}
				}
				size, stride := int(typ.Bits()/8), c.inner*int(typ.Bits()/8)
				for range 15 {
					row, col := r.IntN(c.outer*c.k), r.IntN(c.inner)
					rows, width := 1+r.IntN(c.outer*c.k-row), 1+r.IntN(c.inner-col)
					part := make([]byte, rows*width*size)
					off := row*stride + col*size
					if err := s.ReadRows(part, int64(off), int64(rows), int64(width*size), int64(stride)); err != nil {
						t.Fatal(err)
					}
					for i := range rows {
						if !bytes.Equal(part[i*width*size:(i+1)*width*size], want[off+i*stride:][:width*size]) {
							t.Fatalf("%s: other values in row %d of %d × %d at %d, %d", name, i, rows, width, row, col)
						}
					}
				}
				if _, err := s.ReadAt(make([]byte, 8), int64(len(want))); err == nil {
					t.Errorf("%s: reads beyond the end", name)
				}
			}
		}
	}
}

// A model whose weights went through a GGUF file of the same floats converts to the
// same bytes; of every kind of model.
func TestThereAndBack(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		model, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		path := modeltest.Write(t, model)
		m := modeltest.Open(t, path)
		p, err := ggufmodel.NewPlan(m, ggufmodel.Options{Mix: "F32", Pure: true, TensorTypes: ownTypes(m)})
		if err != nil {
			if kind.Name == "plain" {
				continue // no weights
			}
			t.Fatalf("%s: %v", kind.Name, err)
		}
		weights := filepath.Join(t.TempDir(), "w.gguf")
		if _, err := p.Write(context.Background(), weights); err != nil {
			t.Fatalf("%s: %v", kind.Name, err)
		}
		from, err := ggufmodel.ReadWeights(m, weights, nil)
		if err != nil || len(from.Unused) > 0 || len(from.Tensors) != from.Of {
			t.Fatalf("%s: %+v, %v", kind.Name, from, err)
		}
		plan, err := m.Plan(onnxq.Options{Block: 32, Ops: []string{"all"}})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out.onnx")
		if _, err := plan.Convert(context.Background(), out); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if want := modeltest.Convert(t, path, filepath.Join(t.TempDir(), "want.onnx"), onnxq.Options{Block: 32, Ops: []string{"all"}}); !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes", kind.Name)
		}
	}
}

// ownTypes keeps every tensor's type.
func ownTypes(m *onnxq.Model) []ggufmodel.TypeRule {
	names := map[dtype.DType]string{dtype.Float32: "F32", dtype.Float16: "F16", dtype.BFloat16: "BF16", dtype.Float64: "F64"}
	var rules []ggufmodel.TypeRule
	for _, v := range m.Graph().Values {
		if name, ok := names[dtype.DType(v.Tensor.GetDataType())]; ok {
			rules = append(rules, ggufmodel.TypeRule{Pattern: v.Path, Type: name})
		}
	}
	return rules
}

func TestReadWeightsRefuses(t *testing.T) {
	model, _ := reader("MatMul", dtype.Float16, 64, 32)
	path := modeltest.Write(t, model)
	for _, c := range []struct {
		tensor gguf.Tensor
		want   string
	}{
		{gguf.Tensor{Name: "v", Type: gguf.F32, Shape: []int64{32, 64}}, "none of its 1 tensors is called like one of the model"},
		{gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{64, 32}}, `it has the shape [64 32]; the model's "w" of shape [64 32] wants [32 64]`},
		{gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{32 * 64}}, "it has the shape [2048]"},
		{gguf.Tensor{Name: "w", Type: gguf.I32, Shape: []int64{32, 64}}, "its type, I32, cannot be decoded"},
	} {
		m := modeltest.Open(t, path)
		if _, err := ggufmodel.ReadWeights(m, ggufFile(t, c.tensor, nil), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.tensor, err, c.want)
		}
	}

	// What does not fit the tensor's type is found when it is read.
	big := binary.LittleEndian.AppendUint32(make([]byte, 4*9), math.Float32bits(70000))
	weights := ggufFile(t, gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{1, 32, 64}}, big)
	m := modeltest.Open(t, path)
	if _, err := ggufmodel.ReadWeights(m, weights, nil); err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(onnxq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	if _, err := p.Convert(context.Background(), out); err == nil || !strings.Contains(err.Error(), `tensor "w" holds 70000, which FLOAT16 does not reach`) {
		t.Errorf("too large a value: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an output is left")
	}
	// The file is one of the input's, and not to be overwritten.
	if err := p.CheckOutput(weights); err == nil {
		t.Error("the weights may be overwritten")
	}
}

// ggufFile writes a file of one tensor, whose content begins with b.
func ggufFile(t *testing.T, tensor gguf.Tensor, b []byte) string {
	t.Helper()
	l, err := gguf.NewLayout(nil, []gguf.Tensor{tensor})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "w.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.WriteHead(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(l.Size); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Content(f, 0).WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return path
}
