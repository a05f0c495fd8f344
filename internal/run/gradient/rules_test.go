package gradient

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
)

// given are elements of tensors, and their gradients.
type givenWeights struct{ x, g [][]float32 }

func (w *givenWeights) Elements(i int, x []float32) error { copy(x, w.x[i]); return nil }

func (w *givenWeights) Gradient(i int, g []float32) error {
	if w.g[i] == nil {
		w.g[i] = make([]float32, len(g))
	}
	addTo(w.g[i], g)
	return nil
}

// opened writes a model whose tensors of float32 have random elements between two limits, and opens it for gradients
// by these whose names begin with w.
func opened(t *testing.T, m *onnxpb.ModelProto, least, most float64) (*Model, *givenWeights) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	w := &givenWeights{}
	var names []string
	for _, p := range m.Graph.Initializer {
		if p.GetDataType() != int32(dtype.Float32) || !strings.HasPrefix(p.GetName(), "w") {
			continue
		}
		x := make([]float32, len(p.RawData)/4)
		for i := range x {
			x[i] = float32(least + (most-least)*r.Float64())
		}
		dtype.Float32.Encode(p.RawData, x)
		other := slices.Clone(x)
		for i := range other {
			other[i] += float32(0.1 * (most - least) * (r.Float64() - 0.5))
			other[i] = min(max(other[i], float32(least)), float32(most))
		}
		names, w.x, w.g = append(names, p.GetName()), append(w.x, other), append(w.g, nil)
	}
	g, err := Open(t.Context(), write(t, m), names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, w
}

func write(t *testing.T, m *onnxpb.ModelProto) string {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkGradients compares gradients with finite differences, in random directions.
func checkGradients(t *testing.T, m *Model, w *givenWeights, samples []Sample) {
	t.Helper()
	if _, err := m.Step(samples, w, true); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range w.x {
		if w.g[i] == nil {
			t.Errorf("tensor %d has no gradient", i)
			continue
		}
		for range 3 {
			direction, slope, size := make([]float32, len(w.x[i])), 0.0, 0.0
			for k := range direction {
				direction[k] = float32(r.NormFloat64())
				slope += float64(direction[k]) * float64(w.g[i][k])
				size += float64(w.g[i][k]) * float64(w.g[i][k])
			}
			const h = 1e-3
			loss := func(h float32) float64 {
				before := w.x[i]
				w.x[i] = slices.Clone(before)
				for k, v := range direction {
					w.x[i][k] += h * v
				}
				l, err := m.Step(samples, w, false)
				if err != nil {
					t.Fatal(err)
				}
				w.x[i] = before
				return l
			}
			found := (loss(h) - loss(-h)) / (2 * h)
			if math.Abs(found-slope) > 0.02*math.Sqrt(size)+1e-6 {
				t.Errorf("tensor %d: the loss changes by %.5g, the gradient says %.5g of %.3g", i, found, slope, math.Sqrt(size))
			}
		}
	}
}

const few = "w:float[2,3]=1"

// The rule of each operator agrees with finite differences.
func TestRules(t *testing.T) {
	tests := []struct {
		values, nodes string
		least, most   float64 // of the tensors; 0: -1 to 1
		opset         int64   // 0: 21
	}{
		{values: few + " w2:float[3]=1", nodes: "y = Add(w, w2)"},
		{values: few + " w2:float[2,1]=1", nodes: "y = Sub(w2, w)"},
		{values: few + " w2:float[4,1,3]=1", nodes: "y = Mul(w, w2)"},
		{values: few + " w2:float[1,3]=1", nodes: "y = Div(w2, w)", least: 0.5, most: 2},
		{values: few + " w2:float[3]=1 w3:float=1", nodes: "y = Sum(w, w2, w3)"},
		{values: few + " w2:float[3]=1", nodes: "y = Mean(w, w2)"},
		{values: few + " w2:float[3]=1", nodes: "y = Max(w, w2)"},
		{values: few + " w2:float[2,3]=1", nodes: "y = Min(w, w2)"},
		{values: few + " e:float=3", nodes: "y = Pow(w, e)", least: 0.5, most: 2},
		{values: few + " e:int64=2", nodes: "y = Pow(w, e)"},
		{values: few + " w2:float[3]=1 i:int64[2,1]=1,0", nodes: "c = Cast<to=9>(i)\ny = Where(c, w, w2)"},
		{values: few + " w2:float[3]=1", nodes: "y = PRelu(w, w2)"},
		{values: few + " a:float=-0.3 b:float=0.4", nodes: "y = Clip(w, a, b)"},
		{values: few, nodes: "y = Clip<min=-0.2>(w)", opset: 6},
		{values: few, nodes: "y = Acos(w)", least: -0.8, most: 0.8},
		{values: few, nodes: "y = Asin(w)", least: -0.8, most: 0.8},
		{values: few, nodes: "y = Log(w)", least: 0.5, most: 2},
		{values: few, nodes: "y = Sqrt(w)", least: 0.5, most: 2},
		{values: few, nodes: "y = Reciprocal(w)", least: 0.5, most: 2},
		{values: few, nodes: "y = HardSwish(w)", least: -4, most: 4},
		{values: few, nodes: "y = HardSigmoid<alpha=0.3>(w)", least: -3, most: 3},
		{values: few, nodes: "y = LeakyRelu<alpha=0.1>(w)"},
		{values: few, nodes: "y = ThresholdedRelu<alpha=0.1>(w)"},
		{values: few, nodes: "y = Elu<alpha=0.7>(w)"},
		{values: few, nodes: "y = Celu<alpha=0.7>(w)"},
		{values: few, nodes: "y = Selu(w)"},
		{values: few, nodes: "y = Gelu(w)", least: -3, most: 3},
		{values: few, nodes: "y = Gelu<approximate=\"tanh\">(w)", least: -3, most: 3},
		{values: few, nodes: "y = com.microsoft::Gelu(w)", least: -3, most: 3},
		{values: few + " w2:float[3]=1", nodes: "y = com.microsoft::BiasGelu(w, w2)", least: -3, most: 3},
		{values: few + " w2:float[3]=1", nodes: "y = com.microsoft::FastGelu(w, w2)", least: -3, most: 3},
		{values: few, nodes: "y = com.microsoft::QuickGelu(w)", least: -3, most: 3},
		{values: few, nodes: "y = Swish<alpha=1.3>(w)", least: -3, most: 3, opset: 24},
		{values: few, nodes: "y = Mish(w)", least: -3, most: 3},

		{values: few + " w2:float[3,4]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[2,5,2,3]=1 w2:float[2,1,3,4]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[5,2,3]=1 w2:float[3,4]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[2,3]=1 w2:float[4,3,2]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[3]=1 w2:float[4,3,2]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[4,2,3]=1 w2:float[3]=1", nodes: "y = MatMul(w, w2)"},
		{values: "w:float[4,3,2]=1 w2:float[4,5,3]=1", nodes: "y = com.microsoft::FusedMatMul<transA=1, transB=1, alpha=0.5>(w, w2)"},
		{values: "w:float[3,2]=1 w2:float[4,3]=1 w3:float[4]=1", nodes: "y = Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>(w, w2, w3)"},
		{values: few + " w2:float[3,4]=1 w3:float[2,1]=1", nodes: "y = Gemm(w, w2, w3)"},
		{values: "w:float[2,4,6,7]=1 w2:float[5,4,3,2]=1 w3:float[5]=1", nodes: "y = Conv<pads=[1,0,1,1], strides=[2,1]>(w, w2, w3)"},
		{values: "w:float[1,4,9]=1 w2:float[8,2,3]=1", nodes: "y = Conv<group=2, dilations=[2]>(w, w2)"},
		{values: "w:float[1,4,5,5]=1 w2:float[4,1,3,3]=1", nodes: "y = Conv<group=4, auto_pad=\"SAME_UPPER\">(w, w2)"},
		{values: "w:float[2,4,3,4]=1 w2:float[4,5,3,2]=1 w3:float[5]=1", nodes: "y = ConvTranspose<strides=[2,1], pads=[1,0,0,1]>(w, w2, w3)"},
		{values: "w:float[1,4,6]=1 w2:float[4,2,3]=1", nodes: "y = ConvTranspose<group=2, output_padding=[1], strides=[2]>(w, w2)"},

		{values: few, nodes: "y = Softmax(w)"},
		{values: "w:float[2,3,4]=1", nodes: "y = Softmax<axis=1>(w)"},
		{values: "w:float[2,3,4]=1", nodes: "y = Softmax<axis=1>(w)", opset: 11},
		{values: "w:float[2,3,4]=1", nodes: "y = LogSoftmax<axis=0>(w)"},
		{values: "w:float[4,2,3]=1 w2:float[2,3]=1 w3:float[3]=1", nodes: "y = LayerNormalization<axis=1>(w, w2, w3)"},
		{values: few + " w2:float[3]=1", nodes: "y = LayerNormalization(w, w2)"},
		{values: few + " w2:float[3]=1", nodes: "y = SimplifiedLayerNormalization(w, w2)"},
		{values: few + " w2:float[3]=1", nodes: "y = RMSNormalization(w, w2)", opset: 23},
		{values: "w:float[2,4,3]=1 w2:float[2,4,3]=1 w3:float[3]=1 w4:float[3]=1 w5:float[3]=1",
			nodes: "z, \"\", \"\", s = com.microsoft::SkipLayerNormalization(w, w2, w3, w4, w5)\ny = Add(z, s)"},
		{values: "w:float[2,4,3]=1 w2:float[2,4,3]=1 w3:float[3]=1",
			nodes: "z, \"\", \"\", s = com.microsoft::SkipSimplifiedLayerNormalization(w, w2, w3)\ny = Add(z, s)"},
		{values: "w:float[2,3,4]=1 w2:float[3]=1 w3:float[3]=1 m:float[3]=0.1,0.2,-0.3 v:float[3]=1,0.5,2", nodes: "y = BatchNormalization(w, w2, w3, m, v)"},
		{values: "w:float[2,3,4,2]=1 w2:float[3]=1 w3:float[3]=1", nodes: "y = InstanceNormalization(w, w2, w3)"},

		{values: "w:float[2,3,4]=1 a:int64[1]=1", nodes: "y = ReduceMean(w, a)"},
		{values: "w:float[2,3,4]=1", nodes: "y = ReduceMean<axes=[0,-1], keepdims=0>(w)", opset: 13},
		{values: "w:float[2,3,4]=1 a:int64[2]=0,2", nodes: "y = ReduceSum<keepdims=0>(w, a)"},
		{values: "w:float[2,3,4]=1", nodes: "y = ReduceSumSquare(w)"},
		{values: "w:float[2,3,4]=1 a:int64[1]=1", nodes: "y = ReduceL1(w, a)", least: -2, most: -0.5},
		{values: "w:float[2,3,4]=1 a:int64[1]=1", nodes: "y = ReduceL2(w, a)"},
		{values: "w:float[2,3,4]=1 a:int64[1]=1", nodes: "y = ReduceLogSumExp(w, a)"},
		{values: "w:float[2,3,4]=1 a:int64[1]=1", nodes: "y = ReduceMax<keepdims=0>(w, a)"},
		{values: "w:float[2,3,4]=1 a:int64[1]=2", nodes: "y = ReduceMin(w, a)"},
		{values: "w:float[2,3,4,5]=1", nodes: "y = GlobalAveragePool(w)"},
		{values: "w:float[2,3,4,5]=1", nodes: "y = GlobalMaxPool(w)"},
		{values: "w:float[2,3,7,5]=1", nodes: "y = AveragePool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]>(w)"},
		{values: "w:float[1,2,7]=1", nodes: "y = AveragePool<kernel_shape=[3], strides=[2], pads=[1,1], count_include_pad=1, ceil_mode=1>(w)"},
		{values: "w:float[2,3,7,5]=1", nodes: "y = MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]>(w)"},
		{values: "w:float[1,2,3,4]=1 s:float[4]=1,1,2,2", nodes: "y = Resize<coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\">(w, \"\", s)"},

		{values: few, nodes: "y = Identity(w)"},
		{values: few, nodes: "y = Dropout(w)"},
		{values: few, nodes: "z = Cast<to=11>(w)\ny = Cast<to=1>(z)"},
		{values: few + " s:int64[2]=3,-1", nodes: "y = Reshape(w, s)"},
		{values: "w:float[2,3,4]=1", nodes: "y = Flatten<axis=2>(w)"},
		{values: "w:float[2,1,4]=1 a:int64[1]=1", nodes: "y = Squeeze(w, a)"},
		{values: few + " a:int64[1]=1", nodes: "y = Unsqueeze(w, a)"},
		{values: "w:float[2,3,4]=1", nodes: "y = Transpose<perm=[2,0,1]>(w)"},
		{values: few + " w2:float[2,2]=1", nodes: "y = Concat<axis=1>(w, w2, w)"},
		{values: "w:float[2,6]=1", nodes: "a, b, c = Split<axis=1, num_outputs=3>(w)\ny = Mul(a, c)"},
		{values: "w:float[5,6]=1 s:int64[2]=4,1 e:int64[2]=0,6 a:int64[2]=0,1 t:int64[2]=-2,3", nodes: "y = Slice(w, s, e, a, t)"},
		{values: "w:float[5,3]=1 i:int64[2,2]=1,4,1,-5", nodes: "y = Gather(w, i)"},
		{values: few + " i:int64[2,2]=1,0,2,2", nodes: "y = GatherElements<axis=1>(w, i)"},
		{values: "w:float[2,3,4]=1 i:int64[2,2]=1,0,1,0", nodes: "y = GatherND(w, i)"},
		{values: few + " w2:float[1,2]=1 i:int64[1,2]=1,0", nodes: "y = ScatterElements<axis=1>(w, i, w2)"},
		{values: "w:float[4,3]=1 w2:float[1,3]=1 i:int64[1,1]=2", nodes: "y = ScatterND(w, i, w2)"},
		{values: few + " s:int64[3]=4,1,3", nodes: "y = Expand(w, s)"},
		{values: few + " s:int64[2]=2,2", nodes: "y = Tile(w, s)"},
		{values: few + " p:int64[4]=1,0,-1,2 c:float=0.5", nodes: "y = Pad(w, p, c)"},
		{values: few + " p:int64[4]=0,1,0,2", nodes: "y = Pad<mode=\"reflect\">(w, p)"},
		{values: "w:float[4,4]=1", nodes: "y = Trilu<upper=0>(w)"},
		{values: few + " i:int64[3]=1,0,1", nodes: "c = Cast<to=9>(i)\ny = Compress<axis=1>(w, c)"},
		{values: "w:float[4,3]=1 l:int64[3]=1,2,4", nodes: "y = ReverseSequence<time_axis=0, batch_axis=1>(w, l)"},
		{values: "w:float[1,8,2,3]=1", nodes: "y = DepthToSpace<blocksize=2>(w)"},
		{values: "w:float[1,2,4,6]=1", nodes: "y = SpaceToDepth<blocksize=2>(w)"},
		{values: few + " s:int64[2]=4,2", nodes: "y = CenterCropPad(w, s)"},
	}
	seen := map[string]bool{}
	for _, name := range strings.Fields("Abs Atan Cos Cosh Erf Exp Neg Relu Sigmoid Sin Sinh Softplus Softsign Tan Tanh CastLike") {
		nodes := "y = " + name + "(w)"
		if name == "CastLike" {
			nodes = "y = CastLike(w, w)"
		}
		tests = append(tests, tests[0])
		last := &tests[len(tests)-1]
		last.values, last.nodes = few, nodes
	}
	for _, test := range tests {
		t.Run(test.nodes, func(t *testing.T) {
			if test.opset == 0 {
				test.opset = 21
			}
			if test.least == 0 && test.most == 0 {
				test.least, test.most = -1, 1
			}
			proto := graphtext.Model(t, test.opset, test.values, test.nodes, "y")
			for _, n := range proto.Graph.Node {
				seen[key(n)] = true
			}
			m, w := opened(t, proto, test.least, test.most)
			checkGradients(t, m, w, []Sample{{}})
		})
	}
	if len(seen) < 90 {
		t.Errorf("%d operators, want at least 90", len(seen))
	}
	for name := range rules {
		if !seen[name] {
			t.Errorf("no test of the rule of %s", name)
		}
	}
}
