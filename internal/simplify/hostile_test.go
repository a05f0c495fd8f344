package simplify_test

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/simplify"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Models with random changes are simplified or refused. What is made is a valid graph, all of whose contents can be read.
func TestHostile(t *testing.T) {
	image := []int64{2, 4, 7, 7}
	seeds := []*testmodels.Model{
		model(17, dtype.Float32, image, nodes{bn4("n", "x"), node("Conv", "p", "n w b"), bn("q", "p"), node("Relu", "r", "q"), node("ConvTranspose", "y", "r grouped", attr("group", 2))}),
		model(17, dtype.Float32, []int64{2, 4}, nodes{bn4("n", "x"), node("MatMul", "p", "n k"), node("Add", "q", "p b"), node("Mul", "u", "q row"), node("Shape", "d", "c4"), node("Identity", "y", "u")}),
		model(6, dtype.Float16, image, nodes{node("Conv", "p", "x w b"), bn("q", "p", attr("is_test", 1)), node("Mul", "y", "q g", attr("broadcast", 1), attr("axis", 1))}),
		model(17, dtype.Float32, []int64{2, 4}, nodes{node("Transpose", "t", "kt"), node("Gemm", "p", "x t b", floatAttr("beta", 2)), bn("y", "p")}),
	}
	count := 400
	if !testing.Short() {
		count = 4000
	}
	changed := 0
	for i := range count {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		m := proto.CloneOf(seeds[i%len(seeds)].Proto)
		if i%2 == 0 {
			modeltest.Mutate(rng, m, seeds[(i+1)%len(seeds)].Proto)
		} else {
			modeltest.Vary(rng, m)
		}
		if m.Graph == nil {
			continue
		}
		file, err := modelfile.Open(modeltest.Write(t, &testmodels.Model{Proto: m}))
		if err != nil {
			continue
		}
		if x, err := graph.New(file); err == nil {
			if s, err := simplify.New(x); err != nil {
				t.Errorf("model %d: %v", i, err)
			} else if s.Graph != x {
				changed++
				readAll(t, i, s.Graph)
			}
		}
		file.Close()
	}
	if changed < count/4 {
		t.Errorf("%d of %d models were simplified", changed, count)
	}
}

func readAll(t *testing.T, i int, x *graph.Graph) {
	t.Helper()
	for _, w := range modelfile.Tensors(x.File.Proto) {
		if dtype.DType(w.GetDataType()) == dtype.String {
			continue
		}
		p, err := x.File.Payload(w)
		if err == nil && p.Size() > 0 {
			_, err = p.ReadAt(make([]byte, p.Size()), 0)
		}
		if err != nil {
			t.Errorf("model %d: %s: %v", i, w.GetName(), err)
		}
	}
}
