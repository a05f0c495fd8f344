package observe

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

func sequences(t *testing.T, path string, opts SelfOptions) (list [][]int64) {
	t.Helper()
	s, err := (&Engine{}).Self(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	for inputs, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, inputs[0].Int64s())
	}
	return list
}

// The model "tied" looks at one id alone, so pairs of ids must be as frequent as it says.
func TestSelf(t *testing.T) {
	m, err := testmodels.Build("tied", 1)
	if err != nil {
		t.Fatal(err)
	}
	path := modeltest.Write(t, m)
	all := sequences(t, path, SelfOptions{N: 8, Length: 64, Seed: 1})
	if len(all) != 8 || len(all[7]) != 64 {
		t.Fatalf("%d sequences", len(all))
	}
	if again := sequences(t, path, SelfOptions{N: 8, Length: 64, Seed: 1}); !slices.EqualFunc(all, again, slices.Equal) {
		t.Error("a seed does not decide what the samples are")
	}
	if merged := sequences(t, modeltest.Write(t, branched(m)), SelfOptions{N: 8, Length: 64, Seed: 1}); !slices.EqualFunc(all, merged, slices.Equal) {
		t.Error("in a branch it makes other samples")
	}
	if other := sequences(t, path, SelfOptions{N: 1, Length: 64, Seed: 2}); slices.Equal(all[0], other[0]) {
		t.Error("another seed makes the same samples")
	}
	e := &Engine{}
	s, err := e.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	file, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l, err := samples.NewLanguage(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, ids := range all[:2] {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		rng.Int64N(100)
		for at, id := range ids[1:] {
			inputs, err := l.Inputs([][]int64{ids[at : at+1]}, nil)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := sample(out[0].Float32s(), rng.Float64(), make([]float64, out[0].Len())); want != id {
				t.Fatalf("sequence %d: id %d is %d, want %d", i, at+1, id, want)
			}
		}
	}
}

func TestSample(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Inf(-1)), float32(math.Log(1))}
	counts := make([]int, 4)
	for i := range 4000 {
		id, ok := sample(logits, (float64(i)+0.5)/4000, make([]float64, len(logits)))
		if !ok {
			t.Fatal("refused")
		}
		counts[id]++
	}
	if !slices.Equal(counts, []int{1000, 2000, 0, 1000}) {
		t.Errorf("%v", counts)
	}
	for _, bad := range [][]float32{{0, float32(math.NaN())}, {0, float32(math.Inf(1))}} {
		if _, ok := sample(bad, 0.5, make([]float64, len(bad))); ok {
			t.Errorf("%v has a distribution", bad)
		}
	}
}

// branched returns a model whose nodes are in a branch, as those of a merged decoder are.
func branched(m *testmodels.Model) *testmodels.Model {
	p := proto.CloneOf(m.Proto)
	in := modeltest.GraphAttr("else_branch", nil, p.Graph.Node...)
	other := modeltest.GraphAttr("then_branch", nil, modeltest.ConstantNode("none", modeltest.Floats("", 1, 1, 1)))
	p.Graph.Node = modeltest.Nodes{modeltest.Node("If", p.Graph.Output[0].GetName(), "use_cache_branch", in, other)}
	p.Graph.Input = append(p.Graph.Input, &onnxpb.ValueInfoProto{Name: new("use_cache_branch"), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(dtype.Bool)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
			{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1}},
		}}},
	}}})
	return &testmodels.Model{Proto: p}
}

// Other models are refused, with a reason.
func TestNoLanguage(t *testing.T) {
	tied := func(change func(g *onnxpb.GraphProto)) string {
		m, err := testmodels.Build("tied", 1)
		if err != nil {
			t.Fatal(err)
		}
		change(m.Proto.Graph)
		return modeltest.Write(t, m)
	}
	for says, path := range map[string]string{
		"no input has token ids": modeltest.Build(t, "mlp"),
		"this model sees the ids that follow": tied(func(g *onnxpb.GraphProto) {
			g.Node[1] = modeltest.Node("Sub", "h", "e mean")
			g.Node = slices.Insert(g.Node, 1, modeltest.Node("ReduceMean", "mean", "e axes"))
			g.Initializer = append(g.Initializer, modeltest.Integers("axes", 0))
		}),
		"no output has a number for each of the 100 tokens": tied(func(g *onnxpb.GraphProto) {
			g.Output[0].Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 7}
		}),
	} {
		_, err := (&Engine{}).Self(t.Context(), path, SelfOptions{N: 1, Length: 8})
		if !errors.Is(err, samples.ErrLanguage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// For an estimate, random ids stand for samples of as many sequences.
func TestSuppose(t *testing.T) {
	m, err := testmodels.Build("tied", 1)
	if err != nil {
		t.Fatal(err)
	}
	s, making, err := (&Engine{}).Suppose(t.Context(), modeltest.Write(t, m), SelfOptions{N: 5, Length: 64})
	if err != nil {
		t.Fatal(err)
	}
	vocabulary := making.Drawn / (5 * 63)
	if s.Len() != 5 || making.Runs < 3 || making.Runs > 32 || vocabulary < 2 || making.Handed < making.Drawn {
		t.Errorf("%d samples, made by %+v", s.Len(), making)
	}
}
