package onnxq

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/rules"
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
	encodeFloats(content, x, typ)
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
func asGGUF(t testing.TB, m *Model, opts GGUFOptions) (*gguf.File, *GGUFReport) {
	t.Helper()
	p, err := m.PlanGGUF(opts)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.gguf")
	report, err := p.Write(context.Background(), out)
	if err != nil {
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
	return f, report
}

// turned returns x, [outer, k, inner], as [outer, inner, k].
func turned(x []float32, outer, k, inner int) []float32 {
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
func TestGGUFContents(t *testing.T) {
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
			m := opened(t, written(t, model))
			rows := turned(x, c.outer, c.k, c.inner)
			for _, e := range []*ggml.Encoding{ggml.F32, ggml.Q4_0, ggml.Q6_K, ggml.F16} {
				want := make([]byte, len(rows)/e.Elements*e.Bytes)
				if err := e.Quantize(want, rows, c.k, nil, 2); err != nil {
					t.Fatal(err)
				}
				for _, memory := range []int64{1, 0} {
					name := fmt.Sprintf("%s %v %v as %v", c.op, typ, c.shape, e)
					f, _ := asGGUF(t, m, GGUFOptions{TensorTypes: []TypeRule{{"w", e.Name}}, Memory: memory, Threads: 3})
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

// What is read back is what the blocks say, rounded to the tensor's type, in the order
// of the model: at once, in parts, and as rows of parts.
func TestGGUFSource(t *testing.T) {
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
				m := opened(t, written(t, model))
				f, _ := asGGUF(t, m, GGUFOptions{TensorTypes: []TypeRule{{"w", e.Name}}})
				packed := make([]byte, f.Tensor("w").Bytes())
				if err := buffer.ReadFull(f.Content(f.Tensor("w")), packed, 0); err != nil {
					t.Fatal(err)
				}
				decoded := make([]float32, len(x))
				if err := e.Dequantize(decoded, packed, c.k, 1); err != nil {
					t.Fatal(err)
				}
				want := make([]byte, int64(len(x))*typ.Bits()/8)
				encodeFloats(want, turned(decoded, c.outer, c.inner, c.k), typ)
				name := fmt.Sprintf("%s %v %v as %v", c.op, typ, c.shape, e)

				v := m.index.Values[0]
				s, err := newGGUFSource(f, f.Tensor("w"), m.index, v)
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
				size, stride := int(s.size), c.inner*int(s.size)
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
func TestGGUFThereAndBack(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		model, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		path := written(t, model)
		m := opened(t, path)
		p, err := m.PlanGGUF(GGUFOptions{Mix: "F32", Pure: true, TensorTypes: ownTypes(m)})
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
		from, err := m.ReadWeights(weights, nil)
		if err != nil || len(from.Unused) > 0 || len(from.Tensors) != from.Of {
			t.Fatalf("%s: %+v, %v", kind.Name, from, err)
		}
		plan, err := m.Plan(Options{Block: 32, Ops: []string{"all"}})
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
		if want := convert(t, path, filepath.Join(t.TempDir(), "want.onnx"), Options{Block: 32, Ops: []string{"all"}}); !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes", kind.Name)
		}
	}
}

// ownTypes keeps every tensor's type.
func ownTypes(m *Model) []TypeRule {
	var rules []TypeRule
	for _, v := range m.index.Values {
		if t, ok := floatTypes[dtype.DType(v.Tensor.GetDataType())]; ok {
			rules = append(rules, TypeRule{v.Path, t.String()})
		}
	}
	return rules
}

func TestReadWeightsRefuses(t *testing.T) {
	model, _ := reader("MatMul", dtype.Float16, 64, 32)
	path := written(t, model)
	for _, c := range []struct {
		tensor gguf.Tensor
		want   string
	}{
		{gguf.Tensor{Name: "v", Type: gguf.F32, Shape: []int64{32, 64}}, "none of its 1 tensors is called like one of the model"},
		{gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{64, 32}}, `it has the shape [64 32]; the model's "w" of shape [64 32] wants [32 64]`},
		{gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{32 * 64}}, "it has the shape [2048]"},
		{gguf.Tensor{Name: "w", Type: gguf.I32, Shape: []int64{32, 64}}, "its type, I32, cannot be decoded"},
	} {
		m := opened(t, path)
		if _, err := m.ReadWeights(ggufFile(t, c.tensor, nil), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.tensor, err, c.want)
		}
	}

	// What does not fit the tensor's type is found when it is read.
	big := binary.LittleEndian.AppendUint32(make([]byte, 4*9), math.Float32bits(70000))
	weights := ggufFile(t, gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int64{1, 32, 64}}, big)
	m := opened(t, path)
	if _, err := m.ReadWeights(weights, nil); err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(Options{})
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

func TestPlanGGUFRefuses(t *testing.T) {
	model, _ := reader("MatMul", dtype.Float32, 40, 32)
	m := opened(t, written(t, model))
	names, err := rules.ParseNames([]byte(`{"v*": "a"}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := rules.ParseNames([]byte(`{"*": null}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts GGUFOptions
		want string
	}{
		{GGUFOptions{Mix: "Q9"}, `mix "Q9" is not known`},
		{GGUFOptions{TensorTypes: []TypeRule{{"w", "Q9"}}}, `type "Q9"`},
		{GGUFOptions{OutputType: "Q9"}, `type "Q9"`},
		{GGUFOptions{TensorTypes: []TypeRule{{"v", "F16"}}}, `no tensor and no node is called "v"`},
		{GGUFOptions{TensorTypes: []TypeRule{{"w", "Q8_0"}}}, "rows of 40 elements are not made of blocks of 32"},
		{GGUFOptions{TensorTypes: []TypeRule{{"w", "F64"}}}, "F64 is only for float64"},
		{GGUFOptions{Threads: -1}, "-1 threads"},
		{GGUFOptions{Names: names}, `line 1, column 2: "v*" matches no tensor`},
		{GGUFOptions{Names: out}, "the model has no float weights"},
		{GGUFOptions{Metadata: []gguf.KeyValue{{Key: "general.alignment", Value: uint32(3)}}}, "want a power of two"},
		{GGUFOptions{Importance: &rules.Importance{Source: "im", Columns: map[string][]float32{"v": nil}}, TensorTypes: nil, Mix: "Q8_0"}, ""},
	} {
		_, err := m.PlanGGUF(c.opts)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.opts, err, c.want)
		}
	}
}

// Values that a type does not have stop the writing, and leave no file.
func TestWriteGGUFRefuses(t *testing.T) {
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
		m := opened(t, written(t, model))
		p, err := m.PlanGGUF(GGUFOptions{TensorTypes: []TypeRule{{"w", c.typ}}})
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
		if left := listing(t, folder); len(left) > 0 {
			t.Errorf("%v as %s leaves %v", c.value, c.typ, left)
		}
	}
}

func TestMixes(t *testing.T) {
	chosen := func(mix string, r role, layer int) gguf.Type {
		m, err := mixNamed(mix)
		if err != nil {
			t.Fatal(err)
		}
		typ, _ := m.choose(r, layer, 32, false)
		return typ
	}
	// Of 32 layers, Q4_K_M gives more bits to these.
	var outer []int
	for layer := range 32 {
		if chosen("q4_k_m", downRole, layer) == gguf.Q6_K {
			outer = append(outer, layer)
		}
	}
	if want := []int{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31}; !slices.Equal(outer, want) {
		t.Errorf("layers %v, want %v", outer, want)
	}
	for _, c := range []struct {
		mix   string
		role  role
		layer int
		want  gguf.Type
	}{
		{"Q4_K_M", otherRole, 0, gguf.Q4_K}, {"Q4_K_M", outputRole, -1, gguf.Q6_K}, {"Q4_K_M", embeddingRole, -1, gguf.Q4_K},
		{"Q4_K_M", downRole, -1, gguf.Q4_K}, {"Q4_K_M", attentionRole, -1, gguf.Q5_K},
		{"Q4_K_S", valueRole, 3, gguf.Q5_K}, {"Q4_K_S", valueRole, 4, gguf.Q4_K}, {"Q3_K_M", valueRole, 1, gguf.Q5_K},
		{"Q3_K_M", downRole, 2, gguf.Q4_K}, {"Q3_K_M", downRole, 1, gguf.Q5_K}, {"Q2_K", projectRole, 9, gguf.Q3_K},
		{"Q8_0", outputRole, -1, gguf.Q8_0}, {"F16", outputRole, -1, gguf.F16}, {"Q4_0", outputRole, -1, gguf.Q6_K},
	} {
		if got := chosen(c.mix, c.role, c.layer); got != c.want {
			t.Errorf("%s, %s of layer %d: %v, want %v", c.mix, roleNames[c.role], c.layer, got, c.want)
		}
	}
	for name, want := range map[string]role{
		"blk.3.attn_v.weight": valueRole, "model.layers.0.self_attn.v_proj.weight": valueRole, "/blocks.0/qkv/MatMul": attentionRole,
		"/h.7/mlp/c_proj/MatMul": downRole, "lm_head.MatMul.weight": outputRole, "output.weight": outputRole, "wpe.weight": positionRole,
		"cos_cache": positionRole, "encoder.layer.0.output.dense.weight": otherRole, "values": otherRole,
	} {
		if got := roleOf(&graph.Graph{}, []string{name}, nil); got != want {
			t.Errorf("%s is %q, want %q", name, roleNames[got], roleNames[want])
		}
	}
	for name, want := range map[string]int{"blk.12.attn_v.weight": 12, "/model/layers.3/mlp/MatMul": 3, "h.0.x": 0, "w3": -1} {
		if got := layerOf([]string{"other", name}); got != want {
			t.Errorf("%s is of layer %d, want %d", name, got, want)
		}
	}
	for _, c := range []struct {
		typ, own gguf.Type
		k        int64
		want     gguf.Type
	}{
		{gguf.Q4_K, gguf.F32, 512, gguf.Q4_K}, {gguf.Q4_K, gguf.F32, 96, gguf.Q5_0}, {gguf.Q6_K, gguf.F16, 96, gguf.Q8_0},
		{gguf.Q4_K, gguf.F32, 40, gguf.F16}, {gguf.Q8_0, gguf.BF16, 40, gguf.BF16}, {gguf.Q2_K, gguf.F32, 32, gguf.Q4_0},
	} {
		if got := fitting(c.typ, c.own, c.k); got != c.want {
			t.Errorf("%v for rows of %d is %v, want %v", c.typ, c.k, got, c.want)
		}
	}
}

// The structure of a model, and not only its names, tells what weights do.
func TestPlanGGUFRoles(t *testing.T) {
	m := opened(t, written(t, testmodels.Embedding(1, 512, 256)))
	p, err := m.PlanGGUF(GGUFOptions{EmbeddingType: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, w := range p.Tensors {
		got[w.Name] = w.Type
	}
	if got["table"] != "Q8_0" || got["head"] != "Q6_K" {
		t.Errorf("types %v, want Q8_0 of the table and Q6_K of the head", got)
	}
}

func TestNames(t *testing.T) {
	n, err := rules.ParseNames([]byte(`{
		"model.layers.*.q_proj.weight": "blk.*.attn_q.weight",
		"a*b*": "*-*-",
		"[x]*": "x*",
		"[*]": "bracket",
		"gone*": null,
		"gone but one": "kept"
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"model.layers.17.q_proj.weight": "blk.17.attn_q.weight",
		"aXYbZb":                        "XY-Zb-",
		"x€":                            "x€",
		"[*]":                           "bracket",
		"other":                         "other",
		"gone":                          "",
		"gone but one":                  "kept",
	} {
		if got, ok := n.For(name); got != want || ok != (want != "") {
			t.Errorf("%s becomes %q, %v, want %q", name, got, ok, want)
		}
	}
	if got, ok := (*rules.Names)(nil).For("w"); got != "w" || !ok {
		t.Error("without names, names change")
	}
	if err := n.Unused([]string{"model.layers.17.q_proj.weight"}); err == nil || !strings.Contains(err.Error(), `line 3, column 3: "a*b*" matches no tensor`) {
		t.Errorf("unused: %v", err)
	}
	for doc, want := range map[string]string{
		`[]`:                "line 1, column 1: want an object",
		`{"a": 1}`:          `line 1, column 7: "a": want a string, got 1`,
		`{"a": ""}`:         "the name is empty",
		`{"a*": "*.*"}`:     "has 2 *, but its key only 1",
		`{"a\\*[*]": "*"}`:  "has 1 *, but its key only 0",
		`{"a": "b"`:         "unexpected end",
		"{\"a\": \"\xff\"}": "not UTF-8",
	} {
		if _, err := rules.ParseNames([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}

// An importance matrix of either form reaches the encoding: one for all rows, or one
// for each matrix.
func TestImportance(t *testing.T) {
	const k, n, experts = 256, 6, 3
	model, x := reader("MatMul", dtype.Float32, experts, k, n)
	m := opened(t, written(t, model))
	rows := turned(x, experts, k, n)
	columns := make([]float32, experts*k)
	for i := range columns {
		columns[i] = float32(i%97) + 0.5
	}
	for _, c := range []struct {
		name string
		path string
		own  bool // each matrix has its own
	}{
		{"GGUF", ggufImportance(t, "w", columns, experts, 4), true},
		{"old", oldImportanceFile(t, "w", columns[:k], 4), false},
	} {
		im, err := rules.LoadImportance(c.path)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for e := range experts {
			own := columns[:k]
			if c.own {
				own = columns[e*k : (e+1)*k]
			}
			b := make([]byte, n*ggml.Q4_K.Bytes)
			if err := ggml.Q4_K.Quantize(b, rows[e*n*k:(e+1)*n*k], k, own, 1); err != nil {
				t.Fatal(err)
			}
			want = append(want, b...)
		}
		f, _ := asGGUF(t, m, GGUFOptions{TensorTypes: []TypeRule{{"w", "Q4_K"}}, Importance: im, Memory: 1})
		got := make([]byte, len(want))
		if err := buffer.ReadFull(f.Content(f.Tensor("w")), got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes", c.name)
		}
	}
	im, err := rules.LoadImportance(oldImportanceFile(t, "other", columns[:k], 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.PlanGGUF(GGUFOptions{Importance: im}); err == nil || !strings.Contains(err.Error(), "none of its 1 names is that of a quantized weight") {
		t.Errorf("another model's: %v", err)
	}
	if im, err = rules.LoadImportance(oldImportanceFile(t, "w", columns[:9], 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.PlanGGUF(GGUFOptions{Importance: im}); err == nil || !strings.Contains(err.Error(), `"w" has 9 values, but its rows have 256 elements`) {
		t.Errorf("another shape: %v", err)
	}
}

// What is too large for an importance matrix is not read.
func TestHugeImportance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	for want, start := range map[string][]int32{
		"a name of more than": {1, 1 << 30},
		"more than 67108864":  {1, 0, 1, 1 << 28},
	} {
		b, _ := binary.Append(nil, binary.LittleEndian, start)
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<30+100); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.LoadImportance(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %s", err, want)
		}
	}
}

func ggufImportance(t *testing.T, name string, columns []float32, matrices int, count float32) string {
	sums := make([]float32, len(columns))
	for i, v := range columns {
		sums[i] = v * count
	}
	l, err := gguf.NewLayout([]gguf.KeyValue{{Key: "general.type", Value: "imatrix"}}, []gguf.Tensor{
		{Name: name + ".in_sum2", Type: gguf.F32, Shape: []int64{int64(matrices), int64(len(columns) / matrices)}},
		{Name: name + ".counts", Type: gguf.F32, Shape: []int64{int64(matrices), 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "imatrix.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.WriteHead(f); err != nil {
		t.Fatal(err)
	}
	for i, values := range [][]float32{sums, slices.Repeat([]float32{count}, matrices)} {
		b, _ := binary.Append(nil, binary.LittleEndian, values)
		if _, err := l.Content(f, i).WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func oldImportanceFile(t *testing.T, name string, columns []float32, batches int32) string {
	b, _ := binary.Append(nil, binary.LittleEndian, []int32{1, int32(len(name))})
	b = append(b, name...)
	b, _ = binary.Append(b, binary.LittleEndian, []int32{batches, int32(len(columns))})
	for _, v := range columns {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v*float32(batches)))
	}
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// FuzzImportance reads what may be an importance matrix.
func FuzzImportance(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 0, 0, 0, 'w', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 128, 63})
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 127})
	f.Add([]byte{255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 31})
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	path := filepath.Join(f.TempDir(), "imatrix")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		im, err := rules.LoadImportance(path)
		if err != nil {
			return
		}
		for name, values := range im.Columns {
			for _, v := range values {
				if !(v >= 0) {
					t.Fatalf("%q has %v", name, v)
				}
			}
		}
	})
}

// FuzzNames maps a name by a document: each star of a glob stands for a part of the name,
// and what no rule matches stays as it is.
func FuzzNames(f *testing.F) {
	f.Add(`{"a*b?": "*x"}`, "aabb")
	f.Add(`{"[a-*]*\\*": "*"}`, "a€*")
	f.Add(`{"*": null, "w": "v"}`, "w")
	f.Fuzz(func(t *testing.T, doc, name string) {
		n, err := rules.ParseNames([]byte(doc))
		if err != nil {
			return
		}
		got, ok := n.For(name)
		unused := n.Unused([]string{name})
		if len(n.Rules) == 1 && unused != nil && (!ok || got != name) {
			t.Fatalf("no rule matches %q, which becomes %q, %v", name, got, ok)
		}
		for _, r := range n.Rules {
			if rules.MatchGlob(r.Pattern, name) && len(rules.GlobParts(r.Pattern, name)) != rules.Stars(r.Pattern) {
				t.Fatalf("%q has %d stars, which stand for %q in %q", r.Pattern, rules.Stars(r.Pattern), rules.GlobParts(r.Pattern, name), name)
			}
		}
	})
}
