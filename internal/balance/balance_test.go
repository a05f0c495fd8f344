package balance_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/balance"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

const channels = 32

// tensors are those of the models of these tests.
func tensors() modeltest.Tensors {
	return modeltest.Tensors{
		modeltest.Floats("g", channels), modeltest.Floats("b", 1, channels), modeltest.Floats("one", 1), modeltest.Floats("w", channels, 16),
		modeltest.Floats("v", 24, channels), modeltest.Floats("narrow", 16, 16), modeltest.Floats("cube", 2, channels, 16),
	}
}

func open(t *testing.T, nodes ...*onnxpb.NodeProto) *graph.Graph {
	t.Helper()
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors(), nodes))).Graph()
}

// A group needs a number for each channel that nothing else reads, and readers that are products alone.
func TestFind(t *testing.T) {
	node := modeltest.Node
	norm, product := node("LayerNormalization", "n", "x g b"), node("MatMul", "y", "n w")
	second := node("LayerNormalization", "m", "x g b")
	second.Output = append(second.Output, "n")
	for _, c := range []struct {
		name             string
		nodes            modeltest.Nodes
		weights, divided string
	}{
		{"LayerNormalization", modeltest.Nodes{norm, product}, "w", "gb"},
		{"LayerNormalization without bias", modeltest.Nodes{node("LayerNormalization", "n", "x g"), product}, "w", "g"},
		{"RMSNormalization", modeltest.Nodes{node("RMSNormalization", "n", "x g"), product}, "w", "g"},
		{"Mul", modeltest.Nodes{node("Mul", "n", "g x"), product}, "w", "g"},
		{"Mul and Add", modeltest.Nodes{node("Mul", "m", "x g"), node("Add", "n", "m b"), product}, "w", "gb"},
		{"two readers", modeltest.Nodes{norm, node("Gemm", "p", "n v", modeltest.IntAttr("transB", 1)), node("MatMul", "y", "n w")}, "vw", "gb"},
		{"another reader", modeltest.Nodes{norm, node("Relu", "r", "n"), product}, "", ""},
		{"a number for all channels", modeltest.Nodes{node("Mul", "n", "x one"), product}, "", ""},
		{"Add alone", modeltest.Nodes{node("Add", "n", "x b"), product}, "", ""},
		{"two Adds", modeltest.Nodes{node("Mul", "m", "x g"), node("Add", "a", "m b"), node("Add", "n", "a b"), product}, "", ""},
		{"the product is read", modeltest.Nodes{node("Mul", "m", "x g"), node("Add", "n", "m b"), node("Relu", "r", "m"), product}, "", ""},
		{"a shared tensor", modeltest.Nodes{norm, node("Mul", "r", "x g"), product}, "", ""},
		{"a shared weight", modeltest.Nodes{norm, node("Relu", "r", "w"), product}, "", ""},
		{"transA", modeltest.Nodes{norm, node("Gemm", "y", "n w", modeltest.IntAttr("transA", 1))}, "", ""},
		{"a first factor", modeltest.Nodes{norm, node("MatMul", "y", "narrow n")}, "", ""},
		{"a stack of matrices", modeltest.Nodes{norm, node("MatMul", "y", "n cube")}, "", ""},
		{"other channels", modeltest.Nodes{norm, node("MatMul", "p", "n narrow"), product}, "", ""},
		{"an output", modeltest.Nodes{node("LayerNormalization", "y", "x g b"), node("MatMul", "p", "y w")}, "", ""},
		{"the mean", modeltest.Nodes{second, product}, "", ""},
	} {
		var weights, divided string
		for _, g := range balance.Find(open(t, c.nodes...)) {
			for _, p := range g.Weights {
				weights += p.Value.Name
			}
			for _, p := range g.Divided {
				divided += p.Value.Name
			}
		}
		if weights != c.weights || divided != c.divided {
			t.Errorf("%s: weights %q, divided %q; want %q, %q", c.name, weights, divided, c.weights, c.divided)
		}
	}
}

// The factors of one tensor are undone by those of another, in any type, and can be read off the
// result. They cannot if a single bit of it changes.
func TestScale(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		model := modeltest.Model(tensors(), modeltest.Nodes{
			modeltest.Node("LayerNormalization", "n", "x g b"), modeltest.Node("Gemm", "p", "n v", modeltest.IntAttr("transB", 1)), modeltest.Node("MatMul", "y", "n w"),
		})
		for _, w := range model.Proto.Graph.Initializer {
			numbers := make([]float32, len(w.FloatData))
			for i := range numbers {
				numbers[i] = float32(math.Sin(float64(i+1))) * float32(len(w.GetName()))
			}
			if w.GetName() == "g" {
				numbers[3], numbers[4] = 0, 1e-6
			}
			w.FloatData, w.DataType, w.RawData = nil, new(int32(typ)), make([]byte, typ.Bytes(int64(len(numbers))))
			typ.Encode(w.RawData, numbers)
		}
		x := modeltest.Open(t, modeltest.Write(t, model)).Graph()
		factors := make([]float32, channels)
		for i := range factors {
			factors[i] = float32(math.Exp(2 * math.Cos(float64(i))))
		}
		y, err := balance.Scale(x, balance.Find(x), [][]float32{factors})
		if err != nil {
			t.Fatal(err)
		}
		g, was := numbersOf(t, y, "g"), numbersOf(t, x, "g")
		for _, c := range []struct {
			name    string
			channel func(i int) int
			divided bool
		}{
			{"g", func(i int) int { return i }, true}, {"b", func(i int) int { return i }, true},
			{"v", func(i int) int { return i % channels }, false}, {"w", func(i int) int { return i / 16 }, false},
			{"narrow", nil, false},
		} {
			before, after := numbersOf(t, x, c.name), numbersOf(t, y, c.name)
			for i, v := range after {
				want := before[i]
				if c.channel != nil && c.channel(i) != 3 && c.channel(i) != 4 {
					f := was[c.channel(i)] / g[c.channel(i)]
					if c.divided {
						f = 1 / f
					}
					want *= f
				}
				if math.Abs(float64(v-want)) > 0x1p-6*math.Abs(float64(want)) {
					t.Fatalf("%s: element %d of %s is %v, not %v", typ, i, c.name, v, want)
				}
			}
			if changed := !slices.Equal(before, after); changed != (c.channel != nil) {
				t.Errorf("%s: %s is changed: %v", typ, c.name, changed)
			}
		}
		again, groups, err := balance.Like(x, y)
		if err != nil || len(groups) != 1 || !slices.Equal(numbersOf(t, again, "w"), numbersOf(t, y, "w")) || !slices.Equal(numbersOf(t, again, "b"), numbersOf(t, y, "b")) {
			t.Errorf("%s: %d groups with the same factors, %v", typ, len(groups), err)
		}
		written := filepath.Join(t.TempDir(), "out.onnx")
		if err := convert.WriteFloat(t.Context(), y.File, written, 1, 1<<20); err != nil {
			t.Fatal(err)
		}
		proto := modeltest.Read(t, written)
		for _, w := range proto.Graph.Initializer {
			if w.GetName() == "b" {
				w.RawData[len(w.RawData)-1] ^= 1
			}
		}
		model.Proto = proto
		z := modeltest.Open(t, modeltest.Write(t, model)).Graph()
		if _, groups, err := balance.Like(x, z); err != nil || groups != nil {
			t.Errorf("%s: a bit is wrong, and %d groups have factors, %v", typ, len(groups), err)
		}
		for _, w := range proto.Graph.Initializer {
			if w.GetName() == "b" {
				w.Dims, w.RawData = []int64{2, channels}, slices.Concat(w.RawData, w.RawData)
			}
		}
		z = modeltest.Open(t, modeltest.Write(t, model)).Graph()
		if _, groups, err := balance.Like(x, z); err != nil || groups != nil {
			t.Errorf("%s: a number has two parts, and %d groups have factors, %v", typ, len(groups), err)
		}
		if _, groups, err := balance.Like(x, x); err != nil || groups != nil {
			t.Errorf("%s: the same model has %d groups with factors, %v", typ, len(groups), err)
		}
	}
}

func numbersOf(t *testing.T, x *graph.Graph, name string) []float32 {
	t.Helper()
	for _, v := range x.Values {
		if v.Name != name {
			continue
		}
		p, err := x.File.Payload(v.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, p.Size())
		for i := 0; i < len(raw); i += 7 { // in pieces that do not end with elements
			if _, err := p.ReadAt(raw[i:min(i+7, len(raw))], int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		typ := dtype.DType(v.Tensor.GetDataType())
		numbers := make([]float32, int64(len(raw))*8/typ.Bits())
		typ.Decode(numbers, raw)
		return numbers
	}
	t.Fatalf("no tensor %q", name)
	return nil
}
