package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/balance"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Regions end at stored tensors, and have no activation that cannot have factors. With factors, the model computes the
// same.
func TestRegions(t *testing.T) {
	const (
		image = "x:float[1,3,6,6] w:float[4,3,3,3]=1,-0.5,0.25,-2,0.7 b:float[4]=0.3,-0.2,0.1,0.5 v:float[2,4,3,3]=0.5,-1,2,0.3,-0.7 "
		rows  = "x:float[2,5,4] g:float[4]=1,-2,0.5,3 s:float[4]=0.1,0.2,-0.3,0.4 k:float[4,6]=1,-0.5,0.25,-2,0.7 m:float[6,4]=0.5,-1,2,0.3,-0.7 "
		both  = "a: w b | v"
	)
	for _, c := range []struct{ name, values, nodes, want string }{
		{"Relu", image, "a = Conv(x, w, b)\nr = Relu(a)\ny = Conv(r, v)", both},
		{"LeakyRelu", image, "a = Conv(x, w, b)\nr = LeakyRelu<alpha=0.1>(a)\ny = Conv(r, v)", both},
		{"PRelu", image + "slope:float[4,1,1]=0.1,0.2,0.3,0.4", "a = Conv(x, w, b)\nr = PRelu(a, slope)\ny = Conv(r, v)", both},
		{"no bias", image, "a = Conv(x, w)\nr = Relu(a)\ny = Conv(r, v)", "a: w | v"},
		{"Clip at 0", image + "zero:float[]=0", "a = Conv(x, w, b)\nr = Clip(a, zero)\ny = Conv(r, v)", both},
		{"Relu6", image + "zero:float[]=0 six:float[]=6", "a = Conv(x, w, b)\nr = Clip(a, zero, six)\ny = Conv(r, v)", ""},
		{"Sigmoid", image, "a = Conv(x, w, b)\nr = Sigmoid(a)\ny = Conv(r, v)", ""},
		{"depthwise", image + "d:float[4,1,3,3]=1,2,-3,0.5 e:float[4]=1", "a = Conv(x, w, b)\nr = Relu(a)\nq = Conv<group=4, pads=[1,1,1,1]>(r, d, e)\ny = Conv(q, v)", "a: w b | d, q: d e | v"},
		{"groups", image + "d:float[6,2,1,1]=1,2,-3,0.5,0.7", "a = Conv(x, w, b)\nr = Relu(a)\ny = Conv<group=2>(r, d)", "a: w b | d"},
		{"ConvTranspose", image + "d:float[4,5,2,2]=1,2,-3,0.5,0.7 u:float[2,5,1,1]=1,-2,0.5,3", "a = Conv(x, w, b)\nr = Relu(a)\nq = ConvTranspose(r, d)\ny = Conv(q, u)", "a: w b | d, q: d | u"},
		{"pools", image, "a = Conv(x, w, b)\nr = MaxPool<kernel_shape=[2,2]>(a)\nq = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(r)\ny = Conv(q, v)", both},
		{"Gemm behind a pool", image + "h:float[3,4]=1,2,-3,0.5", "a = Conv(x, w, b)\nr = GlobalAveragePool(a)\nq = Flatten(r)\ny = Gemm<transB=1>(q, h)", "a: w b | h"},
		{"Gemm of all pixels", image + "h:float[64,3]=1,2,-3,0.5,0.25", "a = Conv(x, w, b)\nr = Relu(a)\nq = Flatten(r)\ny = Gemm(q, h)", "a: w b | h"},
		{"Reshape of all pixels", image + "h:float[64,3]=1,2,-3,0.5,0.25 shape:int64[2]=0,-1", "a = Conv(x, w, b)\nr = Relu(a)\nq = Reshape(r, shape)\ny = MatMul(q, h)", "a: w b | h"},
		{"mean and Transpose", image + "h:float[4,3]=1,2,-3,0.5,0.25", "a = Conv(x, w, b)\nr = ReduceMean<axes=[3], keepdims=0>(a)\nq = Transpose<perm=[0,2,1]>(r)\ny = MatMul(q, h)", "a: w b | h"},
		{"mean of channels", image, "a = Conv(x, w, b)\nr = ReduceMean<axes=[1]>(a)\nq = Mul(r, a)\ny = Conv(q, v)", ""},
		{"Squeeze and Unsqueeze", image + "axes:int64[1]=2", "a = Conv(x, w, b)\np = GlobalAveragePool(a)\nr = Squeeze(p, axes)\nq = Unsqueeze(r, axes)\ny = Conv(q, u)", "a: w b | u"},
		{"Pad", image + "pads:int64[8]=0,0,1,1,0,0,1,1", "a = Conv(x, w, b)\nr = Pad(a, pads)\ny = Conv(r, v)", both},
		{"Pad with ones", image + "pads:int64[8]=0,0,1,1,0,0,1,1 one:float[]=1", "a = Conv(x, w, b)\nr = Pad(a, pads, one)\ny = Conv(r, v)", ""},
		{"Resize", image + "scales:float[4]=1,1,2,2", "a = Conv(x, w, b)\nr = Resize<mode=\"nearest\">(a, \"\", scales)\ny = Conv(r, v)", both},
		{"Slice", image + "from:int64[1]=1 to:int64[1]=5 axis:int64[1]=2", "a = Conv(x, w, b)\nr = Slice(a, from, to, axis)\ny = Conv(r, v)", both},
		{"Slice of channels", image + "from:int64[1]=0 to:int64[1]=4 axis:int64[1]=1", "a = Conv(x, w, b)\nr = Slice(a, from, to, axis)\ny = Conv(r, v)", ""},
		{"BatchNormalization", image + "n:float[4]=1,2,0.5,3 o:float[4]=0.1,-0.2 p:float[4]=0.3,-0.1 s:float[4]=1,2,0.7", "a = Conv(x, w, b)\nq = BatchNormalization(a, n, o, p, s)\nr = Relu(q)\ny = Conv(r, v)", "a: w b p | n, q: n o | v"},
		{"InstanceNormalization", image + "n:float[4]=1,2,0.5,3 o:float[4]=0.1,-0.2", "a = Conv(x, w, b)\nq = InstanceNormalization(a, n, o)\ny = Conv(q, v)", "q: n o | v"},
		{"residual", image + "d:float[4,4,1,1]=1,2,-3,0.5,0.7,0.3,-0.2 e:float[4]=0.2", "a = Conv(x, w, b)\nr = Relu(a)\nq = Conv(r, d, e)\nz = Add(q, r)\ny = Conv(z, v)", "a: w b d e | d v"},
		{"residual of two", image + "d:float[4,4,1,1]=1,2,-3,0.5,0.7,0.3,-0.2 e:float[4,4,1,1]=0.2,0.5,-0.7,1,0.3", "a = Conv(x, w, b)\nq = Conv(a, d)\nr = Relu(q)\np = Conv(r, e)\nz = Add(a, p)\ny = Conv(z, v)", "a: w b e | d v, q: d | e"},
		{"residual of an input", image + "d:float[3,3,1,1]=1,2,-3,0.5,0.7", "a = Conv(x, d)\nz = Add(a, x)\ny = Conv(z, w)", ""},
		{"residual of a Tanh", image, "a = Conv(x, w, b)\nr = Tanh(a)\nz = Add(a, r)\ny = Conv(z, v)", ""},
		{"gate", image + "d:float[4,4,1,1]=1,2,-3,0.5,0.7", "a = Conv(x, w, b)\np = GlobalAveragePool(a)\nq = Conv(p, d)\nr = Sigmoid(q)\nz = Mul(r, a)\ny = Conv(z, v)", "a: w b | d v"},
		{"square", image, "a = Conv(x, w, b)\nz = Mul(a, a)\ny = Conv(z, v)", ""},
		{"a number for all", image + "two:float[1]=2", "a = Conv(x, w, b)\nq = Mul(a, two)\nr = Div(q, two)\ny = Conv(r, v)", both},
		{"a number for all is added", image + "two:float[1]=2", "a = Conv(x, w, b)\nr = Add(a, two)\ny = Conv(r, v)", ""},
		{"numbers by channel", image + "n:float[1,4,1,1]=1,2,0.5,3 o:float[4,1,1]=0.1,-0.2,0.3", "a = Conv(x, w, b)\nq = Mul(a, n)\nr = Add(q, o)\ny = Conv(r, v)", "a: w b | n, q: n o | v"},
		{"Concat of rows", image, "a = Conv(x, w, b)\nr = Relu(a)\nq = Concat<axis=2>(a, r)\ny = Conv(q, v)", both},
		{"Concat of channels", image + "d:float[2,8,1,1]=1,2,-3,0.5,0.7", "a = Conv(x, w, b)\nr = Relu(a)\nq = Concat<axis=1>(a, r)\ny = Conv(q, d)", ""},
		{"shared weight", image + "d:float[4,4,1,1]=1,2,-3,0.5,0.7", "a = Conv(x, w, b)\nr = Conv(a, d)\nq = Relu(r)\ny = Conv(q, d)", ""},
		{"shape", image + "none:int64[1]=0", "a = Conv(x, w, b)\nr = Shape(a)\nq = Reshape(a, r)\ny = Conv(q, v)", ""},
		{"LayerNormalization", rows, "a = LayerNormalization(x, g, s)\ny = MatMul(a, k)", "a: g s | k"},
		{"three readers", rows + "l:float[4,4]=0.3,1,-1 n:float[4,4]=1,2,-0.4", "a = LayerNormalization(x, g, s)\np = MatMul(a, k)\nq = MatMul(a, l)\nr = MatMul(a, n)\no = MatMul(p, m)\ni = Softmax(q)\nj = Add(o, i)\nz = Add(j, r)\ny = Tanh(z)", "a: g s | k l n, p: k | m"},
		{"products", rows + "e:float[6]=0.5,-0.5,0.2", "a = MatMul(x, k)\nq = Add(a, e)\nr = Relu(q)\ny = MatMul(r, m)", "a: k e | m"},
		{"products, Gelu", rows, "a = MatMul(x, k)\nr = Erf(a)\ny = MatMul(r, m)", ""},
		{"values of attention", rows + "l:float[4,4]=0.3,1,-1,0.2,0.6", "a = MatMul(x, l)\np = Transpose<perm=[0,2,1]>(x)\nq = MatMul(x, p)\nr = Softmax(q)\nz = MatMul(r, a)\ny = MatMul(z, k)", "a: l | k"},
		{"rows are one", rows + "shape:int64[2]=-1,6", "a = MatMul(x, k)\nq = Reshape(a, shape)\ny = MatMul(q, m)", "a: k | m"},
		{"Gemm and Gemm", "x:float[2,4] k:float[6,4]=1,-0.5,0.25,-2,0.7 c:float[6]=1,2 m:float[6,3]=0.5,-1,2", "a = Gemm<transB=1, beta=0.5>(x, k, c)\nr = Relu(a)\ny = Gemm(r, m)", "a: k c | m"},
		{"output between", rows, "y = LayerNormalization(x, g, s)\nz = MatMul(y, k)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "Squeeze and Unsqueeze" {
				c.values += " u:float[2,4,1,1]=1,-2,0.5"
			}
			path := modeltest.Write(t, &testmodels.Model{Proto: graphtext.Model(t, 13+4*int64(strings.Count(c.nodes, "LayerN")), c.values, c.nodes, "y")})
			x := modeltest.Open(t, path).Graph()
			var got []string
			exponents := map[string][]int8{}
			rng := rand.New(rand.NewPCG(1, 2))
			for _, r := range balance.Regions(x) {
				got = append(got, fmt.Sprintf("%s:%s |%s", r.Name, list(r.Divided), list(r.Multiplied)))
				for range r.Channels {
					exponents[r.Name] = append(exponents[r.Name], int8(rng.IntN(81)-40))
				}
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Fatalf("regions %q, want %q", text, c.want)
			}
			if len(exponents) == 0 {
				return
			}
			y, err := balance.Apply(x, exponents)
			if err != nil {
				t.Fatal(err)
			}
			written := filepath.Join(t.TempDir(), "out.onnx")
			if err := convert.WriteFloat(t.Context(), y.File, written, 1, 1<<20); err != nil {
				t.Fatal(err)
			}
			before, after := outputs(t, x, path), outputs(t, x, written)
			most := max(slices.Max(before), -slices.Min(before))
			for i, v := range before {
				if math.Abs(v-after[i]) > 1e-5*most {
					t.Fatalf("output %d is %g, was %g", i, after[i], v)
				}
			}
		})
	}
}

func list(parts []balance.Part) (text string) {
	for _, p := range parts {
		text += " " + p.Value.Name
	}
	return text
}

// outputs runs a model in pure Go.
func outputs(t *testing.T, x *graph.Graph, path string) []float64 {
	t.Helper()
	s, err := evaluate.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var dims []int64
	for _, d := range x.File.Proto.Graph.Input[0].GetType().GetTensorType().GetShape().GetDim() {
		dims = append(dims, d.GetDimValue())
	}
	numbers := make([]float32, 3*6*6*2)
	for i := range numbers {
		numbers[i] = float32(math.Sin(float64(i*i + 1)))
	}
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	in, err := execute.FromFloat32s(dtype.Float32, dims, numbers[:n])
	if err != nil {
		t.Fatal(err)
	}
	in.Name = "x"
	out, err := s.Run([]*execute.Tensor{in}, "y")
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Float64s()
}

// What is recorded of factors adds up, and can be told from what a model had before.
func TestRecord(t *testing.T) {
	m := &onnxpb.ModelProto{}
	if balance.Record(m, nil) != 0 || balance.Recorded(m) != nil {
		t.Error("a record of nothing")
	}
	balance.Record(m, map[string][]int8{"a": {1, -2}, "b": {3}})
	before := &onnxpb.ModelProto{MetadataProps: m.MetadataProps}
	balance.Record(m, map[string][]int8{"a": {100, 100}, "c": {-127}})
	if got := fmt.Sprint(balance.Recorded(m)); got != "map[a:[101 98] b:[3] c:[-127]]" {
		t.Error(got)
	}
	if got := fmt.Sprint(balance.Between(before, m)); got != "map[a:[100 100] c:[-127]]" {
		t.Error(got)
	}
}

// Factors of places that are not there, or of another length, are an error.
func TestApplyOther(t *testing.T) {
	x := modeltest.Graph(t, graphtext.Model(t, 13, "x:float[2,4] k:float[4,6]=1 m:float[6,4]=2", "a = MatMul(x, k)\nr = Relu(a)\ny = MatMul(r, m)", "y"))
	for _, e := range []map[string][]int8{{"a": {1}}, {"b": {1, 2, 3, 4, 5, 6}}} {
		if _, err := balance.Apply(x, e); err == nil {
			t.Errorf("%v: no error", e)
		}
	}
}
